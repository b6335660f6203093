"""SHA-256 of a file, and CRC-64/NVME, which is all that there is of models of older releases.

The CRC takes the awscrt wheel: in pure Python a model of some gigabytes would need most of an hour.
"""

import hashlib
from importlib.util import find_spec
from pathlib import Path

_CHUNK = 4 * 1024 * 1024


def can_check() -> bool:
    """Whether awscrt is there."""
    return find_spec("awscrt") is not None


def sha256(path: Path) -> str:
    """Sixty-four hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def crc64nvme(path: Path) -> str | None:
    """Sixteen hexadecimal digits; None where awscrt is not installed."""
    if not can_check():
        return None
    from awscrt import checksums

    crc = 0
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            crc = checksums.crc64nvme(chunk, crc)
    return f"{crc:016x}"
