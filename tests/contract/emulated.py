"""The Azure emulator for tests, as a process of its own, and our adapter's way into it."""

import json
import re
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from azure.identity.aio import ClientSecretCredential

from service.cloud.azure import AzureCloud
from service.cloud.azure_template import AzureSettings

GROUP = "rekindle"
IMAGE = "rekindle/node:test"
SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"
TENANT = "11111111-1111-1111-1111-111111111111"
_READY = re.compile(r"ARM (\S+) \(CA (\S+)\)")


@dataclass(frozen=True, kw_only=True)
class Emulator:
    """A running emulator."""

    url: str
    ca_path: str

    def cloud(self, owner: str, *, secret: str = "any", ca_path: str | None = None) -> AzureCloud:
        """Our adapter, signed in as the deployment ``owner``."""
        ca_path = self.ca_path if ca_path is None else ca_path
        credential = ClientSecretCredential(
            TENANT,
            "service",
            secret,
            authority=self.url,
            disable_instance_discovery=True,
            connection_verify=ca_path or True,
            retry_total=0,
        )
        settings = AzureSettings(
            subscription_id=SUBSCRIPTION,
            resource_group=GROUP,
            owner=owner,
            subnet_id="/networks/rekindle-{region}/subnets/nodes",
            ssh_public_key="ssh-ed25519 AAAA somebody",
        )
        return AzureCloud(settings, credential, base_url=self.url, ca_path=ca_path)

    def http(self) -> httpx.AsyncClient:
        """A plain client that trusts the emulator."""
        context = ssl.create_default_context(cafile=self.ca_path)
        return httpx.AsyncClient(base_url=self.url, verify=context, trust_env=False)

    async def evict(self, scale_set: str, instance_id: str) -> None:
        """Take one instance out of the blue."""
        body = {"scale_set": scale_set, "instance_id": instance_id, "notice": False}
        async with self.http() as client:
            (await client.post("/_emulator/evict", json=body)).raise_for_status()

    async def leave_room(self, region: str, vm_size: str, available: int | None) -> None:
        """Say how many more instances fit in; None for any number."""
        body = {"region": region, "vm_size": vm_size, "available": available}
        async with self.http() as client:
            (await client.post("/_emulator/capacity", json=body)).raise_for_status()


@contextmanager
def server() -> Iterator[Emulator]:
    """An emulator whose scale sets take a moment to come and go, with two rows on a page."""
    with tempfile.TemporaryDirectory(prefix="rekindle-tests-") as folder:
        images = Path(folder) / "images.json"
        images.write_text(json.dumps({IMAGE: {"command": ["sleep", "600"]}}))
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "emulator", "--state", folder, "--images", str(images)),
                *("--arm-port", "0", "--metadata-port", "0", "--page-size", "2"),
                *("--create-seconds", "0.6", "--delete-seconds", "0.3"),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            running = _ready(process)
            with _group(running):
                yield running
        finally:
            process.terminate()
            process.communicate(timeout=10)


def _ready(process: subprocess.Popen[str]) -> Emulator:
    assert process.stdout
    found = _READY.search(process.stdout.readline())
    assert found, "the emulator did not start"
    return Emulator(url=found[1], ca_path=found[2])


@contextmanager
def _group(running: Emulator) -> Iterator[None]:
    """The resource group exists within; it is deleted at the end, and every VM with it."""
    context = ssl.create_default_context(cafile=running.ca_path)
    form = {"client_id": "service", "client_secret": "any", "scope": f"{running.url}/.default"}
    url = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}?api-version=2025-04-01"
    with httpx.Client(base_url=running.url, verify=context, trust_env=False) as client:
        token = client.post(f"/{TENANT}/oauth2/v2.0/token", data=form).json()["access_token"]
        client.headers["Authorization"] = f"Bearer {token}"
        client.put(url, json={"location": "eastus"}).raise_for_status()
        yield
        answer = client.delete(url)
        while answer.status_code == 202:
            answer = client.get(answer.headers["Location"])
