"""Tokenized data that one generation makes, and later ones need not make again.

A file `cache/NAME` in the job's container is whole, for it was uploaded under a condition,
with the CRC that its maker wrote beside it; its name says what it was made of. Nothing here is
ever needed: where it is not there in time, the trainer tokenizes by itself.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path, PurePosixPath

from trainer.data.token_cache import RECORD
from trainer.rundir import RunDir, SavedFile
from trainer.supervisor.blob.container import (
    AccessRefusedError,
    BlobError,
    BlobNotFoundError,
    JobContainer,
    PreconditionFailedError,
)
from trainer.supervisor.blob.transfer import CorruptError, download_blob, upload_file
from trainer.supervisor.clock import NodeLimits

PREFIX = "cache/"

log = logging.getLogger(__name__)


async def fetch_tokens(container: JobContainer, path: Path) -> None:
    """Bring the tokens of that name; raises BlobNotFound when no generation has left any."""
    name = PREFIX + path.name
    there = (await container.listing(name)).get("")
    if there is None:
        raise BlobNotFoundError(f"{name}: not made yet")
    part = path.with_name(f".{path.name}.part")
    crc = await download_blob(container.access, container.blob(name), part, there.size, there.etag)
    if crc != there.crc64nvme:
        raise CorruptError(f"{name}: crc64nvme is {crc}, not {there.crc64nvme}")
    part.replace(path)


async def share_tokens(
    container: JobContainer,
    folder: RunDir,
    limits: NodeLimits,
    regrant: Callable[[], Awaitable[None]],
) -> None:
    """Upload the tokens that the trainer leaves in its cache folder, until cancelled.

    Their record goes last: what this generation does not come to upload, the next one does.
    """
    failures = 0
    while True:
        try:
            for record in sorted(folder.cache.glob(f"*{RECORD}")):
                await _share_file(container, record)
            failures = 0
        except (BlobError, OSError) as e:
            failures += 1
            log.info("not_shared_yet reason=%s", e)
            if isinstance(e, AccessRefusedError):
                await regrant()
        await asyncio.sleep(min(limits.log_flush * 2 ** min(failures, 10), limits.retry))


async def _share_file(container: JobContainer, record: Path) -> None:
    try:
        path, crc64nvme = _read_record(record)
        try:
            await upload_file(container.access, container.blob(PREFIX + path.name), path, crc64nvme)
        except CorruptError:
            await asyncio.to_thread(path.unlink, missing_ok=True)  # nobody may train on it
            raise
        log.info("shared name=%s", path.name)
    except (CorruptError, FileNotFoundError, ValueError, PreconditionFailedError) as e:
        log.info("not_shared name=%s reason=%s", record.name, e)  # trying again mends none of these
    await asyncio.to_thread(record.unlink, missing_ok=True)


def _read_record(record: Path) -> tuple[Path, str]:
    """The file that a record speaks of, and its CRC."""
    file = SavedFile.from_json(record.read_bytes())
    return record.with_name(PurePosixPath(file.name).name), file.crc64nvme
