"""The private certificate authority under the state folder, and the server's certificate."""

import os
from pathlib import Path

import trustme


def certificates(folder: Path, *names: str) -> tuple[Path, Path]:
    """Return (CA certificate, server key with certificates); the CA is made once and kept."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority = _authority(folder)
    server = folder / "server.pem"
    leaf = authority.issue_cert("localhost", "127.0.0.1", *names)
    _write(server, leaf.private_key_and_cert_chain_pem.bytes())
    return folder / "ca.pem", server


def _authority(folder: Path) -> trustme.CA:
    """Load or make the CA. The certificate is written last: where it is, the key is too."""
    certificate, key = folder / "ca.pem", folder / "ca.key"
    if certificate.exists():
        return trustme.CA.from_pem(certificate.read_bytes(), key.read_bytes())
    authority = trustme.CA(organization_name="Rekindle emulator")
    _write(key, authority.private_key_pem.bytes())
    _write(certificate, authority.cert_pem.bytes())
    return authority


def _write(file: Path, content: bytes) -> None:
    fresh = file.with_suffix(".new")
    fresh.touch(mode=0o600)
    fresh.write_bytes(content)
    os.replace(fresh, file)  # noqa: PTH105 - one syscall, no half-written key
