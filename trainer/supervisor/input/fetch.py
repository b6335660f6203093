"""Fetch and verify a generation's inputs: run spec, input files, checkpoint.

Everything is verified here, so that the trainer may trust its folder.
"""

import asyncio
import hashlib
from collections.abc import Awaitable
from functools import partial
from pathlib import Path, PurePosixPath

from azure.storage.blob import BlobClient

from trainer.checkpoint.checksum import find_difference, sha256_of_part
from trainer.contract import (
    CONVERTED_BASE,
    MANIFEST,
    RUN_SPEC,
    BrokenCheckpoint,
    Committed,
    ConvertedBase,
    FileEntry,
    Generation,
    Grants,
    InputFile,
    Manifest,
    RunSpec,
)
from trainer.rundir import RunDir, is_tensors, tensors_name, write_atomically
from trainer.supervisor.blob.container import (
    BlobAccess,
    BlobNotFoundError,
    JobContainer,
    PreconditionFailedError,
)
from trainer.supervisor.blob.transfer import (
    CorruptError,
    ForgedError,
    download_blob,
    download_range,
    file_sha256,
)
from trainer.supervisor.concurrency import gather_or_cancel


class BrokenCheckpointError(CorruptError):
    """A committed checkpoint has changed or is gone; the service decides what to do."""

    def __init__(self, path: str, file: str, reason: str) -> None:
        super().__init__(f"{path}/{file}: {reason}")
        self.finding = BrokenCheckpoint(path=path, file=file, reason=reason)


async def fetch_run_spec(
    container: JobContainer, generation: Generation, folder: RunDir
) -> RunSpec:
    """Read the job's run spec, verify its hash, and write it into the folder."""
    data, _ = await container.read(RUN_SPEC)
    digest = hashlib.sha256(data).hexdigest()
    if digest != generation.run_spec_sha256:
        raise CorruptError(f"{RUN_SPEC}: sha256 is {digest}, not {generation.run_spec_sha256}")
    write_atomically(folder.run_spec, data)
    return RunSpec.from_json(data)


def input_files(spec: RunSpec) -> list[InputFile]:
    """Return every file that the job's trainer reads, except a base model to be converted."""
    validation = [spec.validation_file] if spec.validation_file is not None else []
    judge = spec.reward_model.files if spec.reward_model is not None else ()
    base = spec.base_model.files if spec.base_model.checkpoint is None else ()
    return [*base, *judge, spec.training_file, *validation]


async def fetch_input(container: JobContainer, grants: Grants, file: InputFile, path: Path) -> None:
    """Fetch one file onto the node; it gets its name once it is verified."""
    if file.path not in grants.inputs:
        raise CorruptError(f"{file.path}: the run spec names it, but no grant to read it came")
    await _fetch(container.access, container.access.blob(grants.inputs[file.path]), file, path)


async def read_converted_base(container: JobContainer) -> ConvertedBase | None:
    """Return the base model converted from the starting checkpoint; None if missing."""
    try:
        data, _ = await container.read(CONVERTED_BASE)
    except BlobNotFoundError:
        return None
    converted_base = ConvertedBase.from_json(data)
    if not converted_base.files:
        raise CorruptError(f"{CONVERTED_BASE}: names no file")
    return converted_base


async def fetch_job_file(container: JobContainer, file: InputFile, path: Path) -> None:
    """Fetch one file of the job's own container, as `fetch_input` does."""
    await _fetch(container.access, container.blob(file.path.split("/", 1)[1]), file, path)


async def _fetch(access: BlobAccess, blob: BlobClient, file: InputFile, path: Path) -> None:
    part_path = path.with_name(f".{path.name}.part")
    crc = await download_blob(access, blob, part_path, file.size)
    if file.crc64nvme and crc != file.crc64nvme:
        raise CorruptError(f"{file.path}: crc64nvme is {crc}, not {file.crc64nvme}")
    if file.sha256:
        digest = await asyncio.to_thread(file_sha256, part_path)
        if digest != file.sha256:
            kind = ForgedError if file.crc64nvme else CorruptError
            raise kind(f"{file.path}: sha256 is {digest}, not {file.sha256}")
    part_path.replace(path)


async def read_manifest(container: JobContainer, committed: Committed) -> bytes:
    """Return the manifest that HEAD names; raise BrokenCheckpointError."""
    path = committed.path
    try:
        data, _ = await container.read(f"{path}/{MANIFEST}")
    except BlobNotFoundError as e:
        raise BrokenCheckpointError(path, MANIFEST, "is gone") from e
    digest = hashlib.sha256(data).hexdigest()
    if digest != committed.manifest_sha256:
        why = f"sha256 is {digest}, not {committed.manifest_sha256}"
        raise BrokenCheckpointError(path, MANIFEST, why)
    return data


def parse_manifest(data: bytes, path: str) -> Manifest:
    """Decode the manifest of folder ``path``."""
    try:
        return Manifest.from_json(data)
    except ValueError as e:
        raise BrokenCheckpointError(path, MANIFEST, f"makes no sense ({e})") from e


def files_needed_in_full(manifest: Manifest, world_size: int, ranks: range) -> list[FileEntry]:
    """Return the files that these ranks need whole: indexes, and tensors without block checksums.

    Ranks of another world size need all of the latter.
    """
    same = manifest.world_size == world_size
    own = {tensors_name(rank) for rank in (ranks if same else range(manifest.world_size))}
    files = [file for file in manifest.files if not file.blocks]
    return [file for file in files if file.name in own or not is_tensors(file.name)]


async def fetch_checkpoint(container: JobContainer, committed: Committed, folder: Path) -> None:
    """Fetch all files of a checkpoint."""
    data = await read_manifest(container, committed)
    files = parse_manifest(data, committed.path).files
    await gather_or_cancel(
        fetch_checkpoint_file(container, committed.path, file, path_inside(folder, file.name))
        for file in files
    )
    write_atomically(folder / MANIFEST, data)


async def fetch_checkpoint_file(
    container: JobContainer, path: str, entry: FileEntry, target: Path
) -> None:
    """Fetch one file of a checkpoint; it gets its name once it is verified."""
    part_path = target.with_name(f".{target.name}.part")
    blob = container.blob(f"{path}/{entry.name}")
    fetching = download_blob(container.access, blob, part_path, entry.size, entry.etag)
    crc = await _require_committed(path, entry, fetching)
    why = f"crc64nvme is {crc}, not {entry.crc64nvme}" if crc != entry.crc64nvme else ""
    if why := why or await asyncio.to_thread(find_difference, part_path, entry):
        raise BrokenCheckpointError(path, entry.name, why)
    part_path.replace(target)


async def fetch_block(
    container: JobContainer, path: str, entry: FileEntry, number: int, target: Path
) -> None:
    """Fetch one block to its place in ``target``; raise BrokenCheckpointError if it differs."""
    blob, span = container.blob(f"{path}/{entry.name}"), entry.span(number)
    fetching = download_range(container.access, blob, target, span, entry.size, entry.etag)
    crc = await _require_committed(path, entry, fetching)
    if crc != entry.blocks[number]:
        where = f"of the {span[1]} bytes at {span[0]}"
        why = f"crc64nvme is {crc}, not {entry.blocks[number]}, {where}"
        raise BrokenCheckpointError(path, entry.name, why)
    if entry.block_sha256:
        sha256 = await container.access.call_once(partial(sha256_of_part, target, *span))
        if entry.block_sha256[number : number + 1] != (sha256,):
            why = f"sha256 of the {span[1]} bytes at {span[0]} is {sha256}, not as committed"
            raise BrokenCheckpointError(path, entry.name, why)


async def _require_committed(path: str, entry: FileEntry, fetching: Awaitable[str]) -> str:
    """Await the fetch; raise BrokenCheckpointError if the blob is not the committed one."""
    try:
        return await fetching
    except (BlobNotFoundError, PreconditionFailedError) as e:
        why = "is gone, or was written again, since it was committed"
        raise BrokenCheckpointError(path, entry.name, why) from e
    except CorruptError as e:
        raise BrokenCheckpointError(path, entry.name, str(e)) from e


def path_inside(folder: Path, name: str) -> Path:
    """Return the path of ``name`` in ``folder``; refuse a name that leads out of it."""
    if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
        raise CorruptError(f"{name!r}: leads out of its folder")
    return folder / name


def read_if_present(path: Path) -> bytes:
    """Return the file's content; empty if it is missing."""
    return path.read_bytes() if path.exists() else b""
