"""Share tokenized data between generations of a job.

A file `cache/NAME` in the job's container is whole: it was uploaded under a condition, with the CRC
of its maker. Its name is a hash of its inputs. It is optional: without it the trainer tokenizes.
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
    """Fetch a file of tokens; raise BlobNotFoundError when no generation uploaded it."""
    name = PREFIX + path.name
    blob = (await container.list_blobs(name)).get("")
    if blob is None:
        raise BlobNotFoundError(f"{name}: not made yet")
    part_path = path.with_name(f".{path.name}.part")
    crc = await download_blob(
        container.access, container.blob(name), part_path, blob.size, blob.etag
    )
    if crc != blob.crc64nvme:
        raise CorruptError(f"{name}: crc64nvme is {crc}, not {blob.crc64nvme}")
    part_path.replace(path)


async def share_tokens(
    container: JobContainer,
    folder: RunDir,
    limits: NodeLimits,
    regrant: Callable[[], Awaitable[None]],
) -> None:
    """Upload the token files that the trainer leaves in its cache folder, until cancelled.

    A record is deleted after its upload, so the next generation uploads what this one does not.
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
            await asyncio.to_thread(path.unlink, missing_ok=True)  # unfit for training
            raise
        log.info("shared name=%s", path.name)
    except (CorruptError, FileNotFoundError, ValueError, PreconditionFailedError) as e:
        log.info("not_shared name=%s reason=%s", record.name, e)  # trying again mends none of these
    await asyncio.to_thread(record.unlink, missing_ok=True)


def _read_record(record: Path) -> tuple[Path, str]:
    """Return the path that a record names, and its CRC."""
    file = SavedFile.from_json(record.read_bytes())
    return record.with_name(PurePosixPath(file.name).name), file.crc64nvme
