"""Transfer files to and from Blob in parallel blocks, each with its CRC-64/NVME.

Uploads map the file instead of reading it: a save is a file in the node's memory
(`trainer/checkpoint/host_buffers.py`), and goes from there to the network.
"""

import asyncio
import hashlib
import mmap
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from azure.core import MatchConditions
from azure.storage.blob import BlobBlock, BlobClient

from trainer.checkpoint.checksum import combine_crcs, format_crc
from trainer.contract import BLOCK
from trainer.supervisor.blob.blocks import BlobRange
from trainer.supervisor.blob.container import BlobAccess, PreconditionFailedError
from trainer.supervisor.concurrency import gather_or_cancel, wait_first


class UploadRateLimiter:
    """Delays bytes to keep a rate, until the cap is lifted.

    The cap leaves bandwidth to the training.
    """

    def __init__(self, bytes_per_second: float, monotonic: Callable[[], float]) -> None:
        self._rate, self._monotonic = bytes_per_second, monotonic
        self._free_at = 0.0  # when everything admitted so far is sent at that rate
        self._lifted = asyncio.Event()

    def lift_cap(self) -> None:
        """Stop limiting: the machine is about to go."""
        self._lifted.set()

    async def wait_for_turn(self, size: int) -> None:
        """Return when ``size`` more bytes may be sent."""
        begins = max(self._free_at, self._monotonic())
        self._free_at = begins + size / self._rate
        while not self._lifted.is_set() and (wait := begins - self._monotonic()) > 0:
            await wait_first(self._lifted.wait(), seconds=wait)


LARGE = 2 * BLOCK  # bytes of a file; larger ones are fetched by processes


class CorruptError(Exception):
    """Bytes differ from what was promised; the text names the file."""


class ForgedError(CorruptError):
    """Size and CRC are right but the SHA-256 is not: no damage, so retrying is useless."""


async def upload_file(
    access: BlobAccess,
    blob: BlobClient,
    path: Path,
    crc64nvme: str,
    rate_limiter: UploadRateLimiter | None = None,
    blocks: Sequence[str] = (),
) -> tuple[str, ...]:
    """Upload an immutable file; a completed earlier upload is fine.

    Returns the SHA-256 of each of ``blocks``, if their CRCs are given. Raises CorruptError if the
    CRC of the file or of a block differs.
    """
    data = await asyncio.to_thread(_map_file, path)
    spans = _spans(len(data))

    async def stage(offset: int, length: int) -> tuple[int, str]:
        if rate_limiter is not None:
            await rate_limiter.wait_for_turn(length)
        block = data[offset : offset + length]
        put_block = partial(access.blocks.put_block, blob.url, _block_id(offset), block)
        crc = await access.call_with_retries(put_block)
        return crc, await access.call_once(partial(_sha256, block)) if blocks else ""

    sums = await gather_or_cancel(stage(offset, length) for offset, length in spans)
    staged = [crc for crc, _ in sums]
    blocks_match = not blocks or [format_crc(crc) for crc in staged] == list(blocks)
    if _combined(staged, spans) != crc64nvme or not blocks_match:
        raise CorruptError(f"{path.name}: its bytes are not those that the trainer wrote")
    commit = partial(
        blob.commit_block_list,
        [BlobBlock(_block_id(offset)) for offset, _ in spans],
        metadata={"crc64nvme": crc64nvme},
        match_condition=MatchConditions.IfMissing,
    )
    try:
        await access.call_with_retries(commit)
    except PreconditionFailedError:
        existing = await access.call_with_retries(blob.get_blob_properties)
        if (existing.size, (existing.metadata or {}).get("crc64nvme")) != (len(data), crc64nvme):
            raise
    return tuple(sha256 for _, sha256 in sums) if blocks else ()


async def download_blob(
    access: BlobAccess, blob: BlobClient, path: Path, size: int, etag: str = ""
) -> str:
    """Download ``size`` bytes into ``path``; return their CRC-64/NVME.

    With ``etag`` raises PreconditionFailedError when the blob has changed.
    """
    await asyncio.to_thread(_remove_old, path)
    spans = _spans(size)
    with path.open("wb") as file:
        crcs = await gather_or_cancel(
            _receive(access, blob, path, span, size, etag) for span in spans
        )
        await asyncio.to_thread(os.fsync, file.fileno())  # of a large file it takes long
    return _combined(crcs, spans)


async def download_range(
    access: BlobAccess, blob: BlobClient, path: Path, span: tuple[int, int], size: int, etag: str
) -> str:
    """Download (offset, length) to its place in an existing file; return the part's CRC.

    Raises as `download_blob` does.
    """
    crc = await _receive(access, blob, path, span, size, etag)
    with path.open("r+b") as file:
        await asyncio.to_thread(os.fdatasync, file.fileno())  # before anybody hears of it
    return format_crc(crc)


def _sha256(block: memoryview) -> str:
    return hashlib.sha256(block).hexdigest()


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _spans(size: int) -> list[tuple[int, int]]:
    """Return (offset, length) of every block of a file of ``size`` bytes."""
    return [(offset, min(BLOCK, size - offset)) for offset in range(0, size, BLOCK)]


def _map_file(path: Path) -> memoryview:
    """Return the bytes of a file, read on access."""
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:  # cannot be mapped
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _remove_old(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # an abandoned download may still write to it


async def _receive(
    access: BlobAccess, blob: BlobClient, path: Path, span: tuple[int, int], size: int, etag: str
) -> int:
    offset, length = span
    blob_range = BlobRange(url=blob.url, offset=offset, length=length, path=path, etag=etag)
    crc, blob_size = await access.receive(blob_range, in_subprocess=size >= LARGE)
    if blob_size != size:
        raise CorruptError(f"{blob.blob_name}: {blob_size} bytes, not {size}")
    return crc


def _block_id(offset: int) -> str:
    return f"{offset:016d}"


def _combined(crcs: Sequence[int], spans: Sequence[tuple[int, int]]) -> str:
    return format_crc(
        combine_crcs((crc, length) for crc, (_, length) in zip(crcs, spans, strict=True))
    )
