"""Checksums of files: size, CRC-64/NVME and SHA-256.

The CRC finds damage at little CPU cost. Only the SHA-256 detects forgery: anyone can make another
file of the same size and CRC.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from awscrt import checksums

from trainer.contract import BLOCK, FileEntry
from trainer.rundir import SavedFile

CHUNK = 64 << 20


def describe_file(path: Path, name: str) -> SavedFile:
    """Return size and checksums of a file, in one pass."""
    crc, size, sha256 = 0, 0, hashlib.sha256()
    with path.open("rb") as f:
        while chunk := f.read(CHUNK):
            crc = checksums.crc64nvme(chunk, crc)
            sha256.update(chunk)
            size += len(chunk)
    return SavedFile(name=name, size=size, crc64nvme=f"{crc:016x}", sha256=sha256.hexdigest())


def find_difference(path: Path, entry: FileEntry) -> str:
    """Say how a file differs from its entry in a manifest, in one pass; empty if it does not.

    Manifests of older releases have no SHA-256: then size and CRC count.
    """
    crc, size, digest, blocks = 0, 0, hashlib.sha256(), []
    with path.open("rb") as f:
        while chunk := f.read(entry.block_size or CHUNK):
            crc = checksums.crc64nvme(chunk, crc)
            if entry.sha256:
                digest.update(chunk)
            if entry.block_sha256:
                blocks.append(hashlib.sha256(chunk).hexdigest())
            size += len(chunk)
    if size != entry.size:
        return f"has {size} bytes, not {entry.size}"
    if (actual := format_crc(crc)) != entry.crc64nvme:
        return f"crc64nvme is {actual}, not {entry.crc64nvme}"
    if entry.sha256 and digest.hexdigest() != entry.sha256:
        return f"sha256 is {digest.hexdigest()}, not {entry.sha256}"
    if tuple(blocks) != entry.block_sha256:
        return "sha256 of a block is not the one that was committed"
    return ""


def sha256_of_part(path: Path, offset: int, length: int) -> str:
    """Return the SHA-256 of a byte range of a file, in hex."""
    with path.open("rb") as f:
        f.seek(offset)
        return hashlib.sha256(f.read(length)).hexdigest()


def describe_blocks(data: memoryview, name: str) -> SavedFile:
    """Return size and CRC of bytes in memory, and the CRC of each block.

    A save's SHA-256 is made while it is uploaded, so that training does not wait for it.
    """
    parts = [data[at : at + BLOCK] for at in range(0, len(data), BLOCK)]
    crcs = [int(checksums.crc64nvme(part)) for part in parts]
    return SavedFile(
        name=name,
        size=len(data),
        crc64nvme=format_crc(combine_crcs(zip(crcs, map(len, parts), strict=True))),
        block_size=BLOCK,
        blocks=tuple(map(format_crc, crcs)),
    )


def combine_crcs(parts: Iterable[tuple[int, int]]) -> int:
    """Combine the CRCs of consecutive parts, given as (CRC, length), into the CRC of the whole."""
    combined = 0
    for crc, length in parts:
        combined = checksums.combine_crc64nvme(combined, crc, length)
    return combined


def format_crc(crc: int) -> str:
    """Format a CRC as records and manifests have it: 16 hex digits."""
    return f"{crc:016x}"
