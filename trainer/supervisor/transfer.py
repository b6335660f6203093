"""Whole files to and from Blob, in parallel blocks, each byte hashed on its way (CRC-64/NVME)."""

import asyncio
import hashlib
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from awscrt import checksums
from azure.core import MatchConditions
from azure.storage.blob import BlobBlock, BlobClient

from trainer.supervisor.blobs import Access, PreconditionFailed
from trainer.supervisor.together import together

BLOCK = 16 * 2**20


class Corrupt(Exception):
    """Bytes are not those that were promised. Names the file."""


async def upload(access: Access, blob: BlobClient, path: Path, crc64nvme: str) -> None:
    """Upload a file that never changes; no harm when an earlier try of ours got through."""
    size = await asyncio.to_thread(_size, path)
    spans = _spans(size)
    staged = await together(
        access.stubbornly(partial(_stage, blob, path, offset, length)) for offset, length in spans
    )
    if _combined(staged, spans) != crc64nvme:
        raise Corrupt(f"{path.name}: its bytes on disk are not those that the trainer wrote")
    blocks = [BlobBlock(_block_id(offset)) for offset, _ in spans]
    commit = partial(
        blob.commit_block_list,
        blocks,
        metadata={"crc64nvme": crc64nvme},
        match_condition=MatchConditions.IfMissing,
    )
    try:
        await access.stubbornly(commit)
    except PreconditionFailed:
        there = await access.stubbornly(blob.get_blob_properties)
        if (there.size, (there.metadata or {}).get("crc64nvme")) != (size, crc64nvme):
            raise


async def download(access: Access, blob: BlobClient, path: Path, size: int, etag: str = "") -> str:
    """Download ``size`` bytes into ``path`` and return their CRC-64/NVME.

    With ``etag`` raises PreconditionFailed when the blob is not that one any more.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)
        spans = _spans(size)
        crcs = await together(
            access.stubbornly(partial(_fetch, blob, path, (offset, length, size), etag))
            for offset, length in spans
        )
        await asyncio.to_thread(os.fsync, file.fileno())  # of a large file it takes long
    return _combined(crcs, spans)


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _size(path: Path) -> int:
    return path.stat().st_size


def _spans(size: int) -> list[tuple[int, int]]:
    """(offset, length) of every block of a file of ``size`` bytes."""
    return [(offset, min(BLOCK, size - offset)) for offset in range(0, size, BLOCK)]


def _stage(blob: BlobClient, path: Path, offset: int, length: int) -> int:
    with path.open("rb") as file:
        file.seek(offset)
        data = file.read(length)
    blob.stage_block(_block_id(offset), data, length=len(data))
    return int(checksums.crc64nvme(data))


def _fetch(blob: BlobClient, path: Path, span: tuple[int, int, int], etag: str) -> int:
    offset, length, size = span
    condition: dict[str, Any] = (
        {"etag": etag, "match_condition": MatchConditions.IfNotModified} if etag else {}
    )
    stream = blob.download_blob(offset, length, **condition)
    data = stream.readall()
    whole = int((stream.properties.content_range or "/-1").rpartition("/")[2])
    if (len(data), whole) != (length, size):
        raise Corrupt(f"{blob.blob_name}: {whole} bytes, not {size}")
    with path.open("r+b") as file:  # its own: this thread may outlive a download that was given up
        file.seek(offset)
        file.write(data)
    return int(checksums.crc64nvme(data))


def _block_id(offset: int) -> str:
    return f"{offset:016d}"


def _combined(crcs: Sequence[int], spans: Sequence[tuple[int, int]]) -> str:
    whole = 0
    for crc, (_, length) in zip(crcs, spans, strict=True):
        whole = checksums.combine_crc64nvme(whole, crc, length)
    return f"{whole:016x}"
