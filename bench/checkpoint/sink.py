"""Start of the sink, a blob store in a process of its own, written in C or in Python.

The C program runs where a compiler is installed. The Python program is slower and then limits the
results; the benchmark says so. As a separate process, the sink does not add to measured CPU time.
It ends when its standard input closes.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

import trustme

SOURCE = Path(__file__).with_name("sink.c")
LIBRARIES = ("-lssl", "-lcrypto", "-lpthread")
READY = "sink ready:"
ACCOUNT, CONTAINER = "bench", "job"
SAS = "sv=2026-06-06&sig=nobody-looks"


class CannotStart(Exception):
    """Raised when the sink did not start."""


@dataclass(frozen=True, kw_only=True)
class Sink:
    """A running sink and its ports."""

    kind: str  # "c" or "python"; the Python sink limits the results
    blob: int  # port
    raw: int
    blob_tls: int
    raw_tls: int
    authority: Path  # certificate of the CA that signed the TLS ports' certificate

    def url(self, *, tls: bool = False) -> str:
        """Return the container's URL with a SAS."""
        scheme, port = ("https", self.blob_tls) if tls else ("http", self.blob)
        return f"{scheme}://localhost:{port}/{ACCOUNT}/{CONTAINER}?{SAS}"

    def stats(self) -> dict[str, int]:
        """Return the bytes received and sent so far."""
        connection = HTTPConnection("localhost", self.blob, timeout=30)
        connection.request("GET", "/stats")
        counters: dict[str, int] = json.loads(connection.getresponse().read())
        connection.close()
        return counters

    def reset(self) -> None:
        """Delete every blob."""
        connection = HTTPConnection("localhost", self.blob, timeout=30)
        connection.request("DELETE", f"/{ACCOUNT}/{CONTAINER}?restype=container")
        connection.getresponse().read()
        connection.close()


def build_sink(folder: Path) -> Path | None:
    """Compile the C sink into the folder; return None without a compiler or OpenSSL's headers."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    program = folder / "sink"
    command = [compiler, "-O2", "-o", str(program), str(SOURCE), *LIBRARIES]
    done = subprocess.run(command, capture_output=True, check=False)
    return program if done.returncode == 0 else None


@contextmanager
def running(
    folder: Path, *, warm_mib: int = 0, check: bool = False, kind: str = ""
) -> Iterator[Sink]:
    """Run a sink with a new certificate.

    Args:
        folder: Folder for the program and the certificate.
        warm_mib: Memory in MiB that the C sink allocates in advance.
        check: Verify the CRC-64 of every request.
        kind: "c" or "python" requires that program; empty prefers C.
    """
    program = None if kind == "python" else build_sink(folder)
    if program is None and kind == "c":
        raise CannotStart("no C compiler, or no OpenSSL headers")
    authority, certificate = _certificate(folder)
    crc_mode = "check" if check else "ignore"
    command = (
        [str(program), str(warm_mib), crc_mode]
        if program
        else [sys.executable, "-m", "bench.checkpoint.slow_sink", crc_mode]
    )
    with subprocess.Popen(
        [*command, str(certificate)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert process.stdin
        line = process.stdout.readline()
        try:
            if not line.startswith(READY):
                raise CannotStart(f"the sink said {line!r}")
            blob, raw, blob_tls, raw_tls = map(int, line.split()[2:])
            yield Sink(
                kind="c" if program else "python",
                blob=blob,
                raw=raw,
                blob_tls=blob_tls,
                raw_tls=raw_tls,
                authority=authority,
            )
        finally:
            process.stdin.close()
            process.wait(timeout=30)


def _certificate(folder: Path) -> tuple[Path, Path]:
    authority = trustme.CA(organization_name="Rekindle bench")
    trusted, own = folder / "ca.pem", folder / "sink.pem"
    authority.cert_pem.write_to_path(str(trusted))
    leaf = authority.issue_cert("localhost", "127.0.0.1")
    own.touch(mode=0o600)
    leaf.private_key_and_cert_chain_pem.write_to_path(str(own))
    return trusted, own
