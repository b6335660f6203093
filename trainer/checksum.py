"""What a file is known by on its way to Blob: its size and CRC-64/NVME."""

from pathlib import Path

from awscrt import checksums

from trainer.rundir import SavedFile

CHUNK = 64 << 20


def describe(path: Path, name: str) -> SavedFile:
    """Size and checksum of a file that exists."""
    crc, size = 0, 0
    with path.open("rb") as f:
        while chunk := f.read(CHUNK):
            crc = checksums.crc64nvme(chunk, crc)
            size += len(chunk)
    return SavedFile(name=name, size=size, crc64nvme=f"{crc:016x}")
