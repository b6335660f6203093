"""What a file is known by on its way to Blob: its size and CRC-64/NVME."""

from collections.abc import Iterable
from pathlib import Path

from awscrt import checksums

from trainer.contract import BLOCK
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


def describe_blocks(data: memoryview, name: str) -> SavedFile:
    """The same of bytes in memory, and of each block, so that any can be fetched by itself."""
    parts = [data[at : at + BLOCK] for at in range(0, len(data), BLOCK)]
    crcs = [int(checksums.crc64nvme(part)) for part in parts]
    return SavedFile(
        name=name,
        size=len(data),
        crc64nvme=in_hex(combined(zip(crcs, map(len, parts), strict=True))),
        block_size=BLOCK,
        blocks=tuple(map(in_hex, crcs)),
    )


def combined(parts: Iterable[tuple[int, int]]) -> int:
    """The CRC of what parts with these CRCs and lengths are together."""
    whole = 0
    for crc, length in parts:
        whole = checksums.combine_crc64nvme(whole, crc, length)
    return whole


def in_hex(crc: int) -> str:
    """As records and manifests have it."""
    return f"{crc:016x}"
