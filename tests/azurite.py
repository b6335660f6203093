"""Azurite for tests: Microsoft's emulator of Blob Storage, in memory."""

import os
import shutil
import socket
import ssl
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme
from azure.storage.blob import (
    BlobServiceClient,
    ContainerClient,
    generate_blob_sas,
    generate_container_sas,
)

from bench import ports
from rekindle.local.setup import tools_path

NEAR = "near"  # second account of the same Azurite, with the same key
ACCOUNT = "devstoreaccount1"  # Azurite's default account and key are public
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

_ACCOUNTS = f"{ACCOUNT}:{KEY};{NEAR}:{KEY}"


@dataclass(frozen=True)
class Azurite:
    """A running Azurite."""

    port: int
    ca: Path | None = None  # CA certificate; None: plain HTTP without tokens

    @property
    def url(self) -> str:
        """URL of the first account."""
        scheme = "https" if self.ca else "http"
        return f"{scheme}://127.0.0.1:{self.port}/{ACCOUNT}"

    @property
    def near_url(self) -> str:
        """URL of the second account."""
        return self.url.replace(ACCOUNT, NEAR)

    @property
    def connection_string(self) -> str:
        """Connection string of the first account, with its key."""
        return f"AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={self.url};"

    @property
    def near_connection_string(self) -> str:
        """Connection string of the second account, with its key."""
        return self.connection_string.replace(ACCOUNT, NEAR)

    @property
    def trust(self) -> ssl.SSLContext:
        """SSL context that trusts its certificate."""
        return ssl.create_default_context(cafile=str(self.ca))

    @contextmanager
    def container(self, prefix: str = "test") -> Iterator[ContainerClient]:
        """Create a container with a unique name, and yield its client."""
        with BlobServiceClient.from_connection_string(self.connection_string) as account:
            yield account.create_container(f"{prefix}-{uuid.uuid4().hex[:12]}")

    def container_sas(self, name: str, *, hours: float = 1.0, permissions: str = "racwdl") -> str:
        """Return the container's URL with a SAS; negative ``hours`` give an expired one."""
        token = generate_container_sas(
            ACCOUNT, name, account_key=KEY, permission=permissions, expiry=_expiry(hours)
        )
        return f"{self.url}/{name}?{token}"

    def blob_sas(self, container: str, name: str, *, hours: float = 1.0) -> str:
        """Return the blob's URL with a SAS for reading it."""
        token = generate_blob_sas(
            ACCOUNT, container, name, account_key=KEY, permission="r", expiry=_expiry(hours)
        )
        return f"{self.url}/{container}/{name}?{token}"


@contextmanager
def server() -> Iterator[Azurite]:
    """Run an Azurite; its data is lost at the end."""
    with _running(_ACCOUNTS) as port:
        yield Azurite(port)


@contextmanager
def keyless(folder: Path) -> Iterator[Azurite]:
    """Run an Azurite that accepts tokens of Microsoft Entra ID over TLS, and no account keys.

    Azurite checks a token's times, issuer and audience, but neither its signature nor its roles.
    """
    ca, certificate, key = folder / "ca.pem", folder / "server.pem", folder / "server.key"
    authority = trustme.CA()
    leaf = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(ca)
    leaf.cert_chain_pems[0].write_to_path(certificate)
    leaf.private_key_pem.write_to_path(key)
    tls = ["--oauth", "basic", "--cert", str(certificate), "--key", str(key)]
    # Copies between the accounts need this trust, too.
    environment = {"NODE_EXTRA_CA_CERTS": str(ca), "REFUSE_KEYS": "1"}
    with _running(_ACCOUNTS, *tls, **environment) as port:
        yield Azurite(port, ca)


@contextmanager
def _running(accounts: str, *options: str, **environment: str) -> Iterator[int]:
    port = ports.free()
    stricter = Path(__file__).with_name("azurite_as_azure.js")
    command = [_node(), "--require", str(stricter), str(_program()), "--blobPort", str(port)]
    process = subprocess.Popen(
        [
            *(*command, "--inMemoryPersistence", "--skipApiVersionCheck"),
            *("--disableTelemetry", "--silent", *options),
        ],
        env=os.environ | environment | {"AZURITE_ACCOUNTS": accounts},  # noqa: TID251
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        _wait_until_it_listens(port, process)
        yield port
    finally:
        process.terminate()
        process.wait(timeout=10)


def _program() -> Path:
    default = Path(__file__).parents[1] / "node_modules" / "azurite"
    folder = Path(os.environ.get("REKINDLE_AZURITE", default))  # noqa: TID251 - tests have no settings
    program = folder / "dist" / "src" / "blob" / "main.js"
    if not program.exists():
        raise FileNotFoundError(f"{program}: run `make setup`, or set REKINDLE_AZURITE")
    return program


def _node() -> str:
    """Return the path of node, from the system or the environment."""
    node = shutil.which("node", path=tools_path())
    if node is None:
        raise FileNotFoundError("no node: run `make setup`")
    return node


def _expiry(hours: float) -> datetime:
    return datetime.fromtimestamp(time.time(), UTC) + timedelta(hours=hours)


def _wait_until_it_listens(port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            threading.Event().wait(0.05)
        else:
            return
    raise RuntimeError(f"Azurite does not listen on port {port} (exit status {process.poll()})")
