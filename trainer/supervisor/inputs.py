"""What a generation needs on the node before its trainer starts: run spec, inputs, checkpoint.

Everything is verified here, so that the trainer may trust what lies in its folder.
"""

import asyncio
import hashlib
from pathlib import Path, PurePosixPath

from trainer.contract import (
    MANIFEST,
    RUN_SPEC,
    Committed,
    FileEntry,
    Generation,
    Grants,
    InputFile,
    Manifest,
    RunSpec,
)
from trainer.rundir import RunDir, write_whole
from trainer.supervisor.blobs import BlobNotFound, JobContainer, PreconditionFailed
from trainer.supervisor.together import together
from trainer.supervisor.transfer import Corrupt, download, sha256_of


async def fetch_run_spec(
    container: JobContainer, generation: Generation, folder: RunDir
) -> RunSpec:
    """Read the job's run spec, check that the generation means this one, and leave it."""
    data, _ = await container.read(RUN_SPEC)
    digest = hashlib.sha256(data).hexdigest()
    if digest != generation.run_spec_sha256:
        raise Corrupt(f"{RUN_SPEC}: sha256 is {digest}, not {generation.run_spec_sha256}")
    write_whole(folder.run_spec, data)
    return RunSpec.from_json(data)


def inputs_of(spec: RunSpec) -> list[InputFile]:
    """Every file that the job's trainer reads."""
    validation = [spec.validation_file] if spec.validation_file is not None else []
    return [*spec.base_model.files, spec.training_file, *validation]


async def fetch_input(container: JobContainer, grants: Grants, file: InputFile, path: Path) -> None:
    """Bring one file onto the node; it gets its name once it is verified."""
    if file.path not in grants.inputs:
        raise Corrupt(f"{file.path}: the run spec names it, but no grant to read it came")
    part = path.with_name(f".{path.name}.part")
    blob = container.access.blob(grants.inputs[file.path])
    await download(container.access, blob, part, file.size)
    if file.sha256:
        digest = await asyncio.to_thread(sha256_of, part)
        if digest != file.sha256:
            raise Corrupt(f"{file.path}: sha256 is {digest}, not {file.sha256}")
    part.replace(path)


async def fetch_checkpoint(container: JobContainer, committed: Committed, folder: Path) -> None:
    """Bring the checkpoint that the generation loads, and not one byte that differs from it."""
    name = f"{committed.path}/{MANIFEST}"
    data, _ = await container.read(name)
    digest = hashlib.sha256(data).hexdigest()
    if digest != committed.manifest_sha256:
        raise Corrupt(f"{name}: sha256 is {digest}, not {committed.manifest_sha256}")
    files = Manifest.from_json(data).files
    await together(_fetch_shard(container, committed.path, f, folder) for f in files)
    write_whole(folder / MANIFEST, data)


async def _fetch_shard(container: JobContainer, path: str, entry: FileEntry, folder: Path) -> None:
    name = f"{path}/{entry.name}"
    target = inside(folder, entry.name)
    try:
        crc = await download(container.access, container.blob(name), target, entry.size, entry.etag)
    except (BlobNotFound, PreconditionFailed) as e:
        raise Corrupt(f"{name}: gone, or written again, since it was committed") from e
    if crc != entry.crc64nvme:
        raise Corrupt(f"{name}: crc64nvme is {crc}, not {entry.crc64nvme}")


def inside(folder: Path, name: str) -> Path:
    """The path of ``name`` in ``folder``; a name that leads out of it is refused."""
    if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
        raise Corrupt(f"{name!r}: leads out of its folder")
    return folder / name
