"""What one generation makes and later ones need not make again, e.g. tokenized data.

A file `cache/NAME` in the job's container is whole, for it was uploaded under a condition,
with the CRC that its maker wrote beside it. Nothing here is ever needed: what is missing or
does not fit is made again.
"""

import asyncio
import logging
from pathlib import Path, PurePosixPath

from trainer.rundir import RunDir, SavedFile
from trainer.supervisor.blobs import BlobError, JobContainer, Stored
from trainer.supervisor.together import together
from trainer.supervisor.transfer import Corrupt, download, upload

PREFIX = "cache/"
RECORD = ".json"  # SavedFile: its file beside it is whole

log = logging.getLogger(__name__)


async def fetch_shared(container: JobContainer, folder: Path) -> None:
    """Bring what older generations have shared; what cannot be had is done without."""
    try:
        stored = await container.listing(PREFIX)
        await together(_fetch(container, name, there, folder) for name, there in stored.items())
    except (BlobError, Corrupt, OSError) as e:
        log.info("shared.not_fetched reason=%s", e)


async def share(container: JobContainer, folder: RunDir, pulse: float) -> None:
    """Upload what the trainer leaves in its cache folder, as long as it runs."""
    while True:
        for record in sorted(folder.cache.glob(f"*{RECORD}")):
            await _share(container, record)
        await asyncio.sleep(pulse)


async def _fetch(container: JobContainer, name: str, there: Stored, folder: Path) -> None:
    path = folder / PurePosixPath(name).name
    if path.exists():
        return
    part = path.with_name(f".{path.name}.part")
    blob = container.blob(PREFIX + name)
    crc = await download(container.access, blob, part, there.size, there.etag)
    if crc != there.crc64nvme:
        raise Corrupt(f"{PREFIX}{name}: crc64nvme is {crc}, not {there.crc64nvme}")
    part.replace(path)


async def _share(container: JobContainer, record: Path) -> None:
    try:
        path, crc64nvme = _taken(record)
        await upload(container.access, container.blob(PREFIX + path.name), path, crc64nvme)
        log.info("shared name=%s", path.name)
    except (BlobError, Corrupt, OSError, ValueError) as e:
        log.info("not_shared name=%s reason=%s", record.name, e)


def _taken(record: Path) -> tuple[Path, str]:
    """The file that a record speaks of, and its CRC; it is tried once."""
    text = record.read_bytes()
    record.unlink()
    file = SavedFile.from_json(text)
    return record.with_name(PurePosixPath(file.name).name), file.crc64nvme
