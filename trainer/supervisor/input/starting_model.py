"""The base model of a job that begins with a checkpoint: converted once, read by every attempt.

The node of rank 0 converts the checkpoint in the job's first generation, uploads the files, and
then writes CONVERTED_BASE, which never changes. Later attempts begin with the same bits, and fetch
neither optimizer states nor the earlier base model.
"""

import asyncio
import logging
import os
from pathlib import Path

from trainer.checkpoint.checksum import describe_file
from trainer.contract import (
    BASE_FOLDER,
    CONVERTED_BASE,
    ConvertedBase,
    Grants,
    InputFile,
    RunSpec,
    converted_base_path,
)
from trainer.rundir import SavedFile
from trainer.supervisor.blob.container import BlobError, JobContainer, PreconditionFailedError
from trainer.supervisor.blob.transfer import upload_file
from trainer.supervisor.concurrency import gather_or_cancel
from trainer.supervisor.control.launch import NodeWorld, TrainerLauncher
from trainer.supervisor.input.cache import InputCache
from trainer.supervisor.input.fetch import read_converted_base

POLL_SECONDS = 2.0  # of the nodes that wait for rank 0's
CONVERTED = "converted"  # in the run folder, until it is uploaded

log = logging.getLogger(__name__)


async def link_converted_base(
    spec: RunSpec, grants: Grants, world: NodeWorld, cache: InputCache, launcher: TrainerLauncher
) -> None:
    """Link the converted base model into the run folder; rank 0's node makes it if it is missing.

    Raises NotConvertibleError, and whatever a fetch or an upload raises; calling again continues.
    """
    container, leads = cache.container, world.member.node_rank == 0
    while (converted_base := await read_converted_base(container)) is None:
        if leads:
            await _convert_and_upload(spec, grants, world, cache, launcher)
        else:
            await asyncio.sleep(POLL_SECONDS)
    await cache.link_converted_base(converted_base, world.folder)
    if leads:
        await _delete_others(container, converted_base)


async def _convert_and_upload(
    spec: RunSpec, grants: Grants, world: NodeWorld, cache: InputCache, launcher: TrainerLauncher
) -> None:
    folder = world.folder.root / CONVERTED
    if not folder.exists():  # else its upload broke off
        sources = await cache.fetch_starting_checkpoint(spec.base_model, grants)
        await launcher.convert(sources.checkpoint, folder, sources.base, sources.run_spec)
    path = converted_base_path(world.generation.number)
    files = await asyncio.to_thread(_describe_files, folder)
    await gather_or_cancel(_upload(cache.container, path, folder, file) for file in files)
    converted_base = _converted_base(spec, path, files)
    try:
        await cache.container.write_new(CONVERTED_BASE, converted_base.to_json().encode())
    except PreconditionFailedError:
        log.info("starting_model.made_elsewhere")  # by a generation that lost its connection
    else:
        await asyncio.to_thread(cache.adopt_converted_base, converted_base, folder)
    await asyncio.to_thread(cache.drop_starting_checkpoint, spec.base_model)


def _describe_files(folder: Path) -> list[SavedFile]:
    """Sync the model's files to disk and describe them; adapters are in a subfolder."""
    files = []
    for path in sorted(p for p in folder.iterdir() if p.is_file()):
        with path.open("rb") as file:
            os.fsync(file.fileno())
        files.append(describe_file(path, path.name))
    return files


async def _upload(container: JobContainer, path: str, folder: Path, file: SavedFile) -> None:
    blob = container.blob(f"{path}/{file.name}")
    await upload_file(container.access, blob, folder / file.name, file.crc64nvme)


def _converted_base(spec: RunSpec, path: str, files: list[SavedFile]) -> ConvertedBase:
    return ConvertedBase(
        files=tuple(
            InputFile(
                path=f"{spec.job_id}/{path}/{f.name}",
                size=f.size,
                sha256=f.sha256,
                crc64nvme=f.crc64nvme,
            )
            for f in files
        )
    )


async def _delete_others(container: JobContainer, converted_base: ConvertedBase) -> None:
    """Delete what other generations left; best effort."""
    retained = {file.path.split("/", 1)[1] for file in converted_base.files} | {CONVERTED_BASE}
    try:
        for name in await container.list_blobs(f"{BASE_FOLDER}/"):
            if (path := f"{BASE_FOLDER}/{name}") not in retained:
                await container.delete(path)
    except BlobError as e:
        log.info("starting_model.not_tidied reason=%s", e)
