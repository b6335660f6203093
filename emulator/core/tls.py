"""The private certificate authority under the state folder, and the server's certificate."""

from pathlib import Path

import trustme

from emulator.core.private_files import write_private


def certificates(folder: Path, *names: str) -> tuple[Path, Path]:
    """Return (CA certificate, server key with certificates); the CA is made once and kept."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority = _authority(folder)
    server = folder / "server.pem"
    leaf = authority.issue_cert("localhost", "127.0.0.1", *names)
    write_private(server, leaf.private_key_and_cert_chain_pem.bytes())
    return folder / "ca.pem", server


def _authority(folder: Path) -> trustme.CA:
    """Load or make the CA. The certificate is written last: where it is, the key is too."""
    certificate, key = folder / "ca.pem", folder / "ca.key"
    if certificate.exists():
        return trustme.CA.from_pem(certificate.read_bytes(), key.read_bytes())
    authority = trustme.CA(organization_name="Rekindle emulator")
    write_private(key, authority.private_key_pem.bytes())
    write_private(certificate, authority.cert_pem.bytes())
    return authority
