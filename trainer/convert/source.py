"""Find and verify the checkpoint to convert: behind a SAS, in a copied container, or in a folder.

HEAD names the manifest by its hash, and the manifest every file by size and checksums. All are
verified before anything is written.
"""

import asyncio
import hashlib
from dataclasses import dataclass
from pathlib import Path

from trainer.checkpoint.checksum import find_difference
from trainer.contract import HEAD, MANIFEST, RUN_SPEC, Committed, FileEntry, Head, Manifest, RunSpec
from trainer.rundir import write_atomically


@dataclass(frozen=True)
class CheckpointSource:
    """A verified checkpoint on this machine's disk, and its run spec."""

    folder: Path
    manifest: Manifest
    spec: RunSpec


def find_checkpoint(
    source: str, scratch: Path, step: int | None = None, run_spec: Path | None = None
) -> CheckpointSource:
    """Return the verified checkpoint of ``source``; raise ValueError for a damaged one.

    The checkpoint of a URL is downloaded into ``scratch`` first. Default ``step``: the newest.
    """
    if source.startswith(("http://", "https://")):
        asyncio.run(_fetch(source, scratch, step))
        return _of_copy(scratch, step, run_spec)
    folder = Path(source)
    if (folder / HEAD).is_file():
        return _of_copy(folder, step, run_spec)
    if (folder / MANIFEST).is_file():
        return _open(folder, run_spec or folder.parent.parent / RUN_SPEC)
    raise ValueError(
        f"{source} has neither {HEAD} (a copy of a job's container) nor {MANIFEST} (a checkpoint)"
    )


def pick_committed(head: Head, step: int | None) -> Committed:
    """Return the committed checkpoint of this step; the newest for None."""
    if head.newest is None:
        raise ValueError("HEAD names no checkpoint: nothing of this job is committed yet")
    if step is None:
        return head.newest
    for entry in head.checkpoints:
        if entry.step == step:
            return entry
    steps = ", ".join(str(entry.step) for entry in head.checkpoints)
    raise ValueError(f"no checkpoint of step {step} is committed; HEAD names those of {steps}")


def _of_copy(root: Path, step: int | None, run_spec: Path | None) -> CheckpointSource:
    entry = pick_committed(Head.from_json((root / HEAD).read_bytes()), step)
    folder = root / entry.path
    data = (folder / MANIFEST).read_bytes()
    if (digest := hashlib.sha256(data).hexdigest()) != entry.manifest_sha256:
        raise ValueError(f"{entry.path}/{MANIFEST}: its SHA-256 is {digest}, HEAD names another")
    return _open(folder, run_spec or root / RUN_SPEC)


def _open(folder: Path, run_spec: Path) -> CheckpointSource:
    manifest = Manifest.from_json((folder / MANIFEST).read_bytes())
    for file in manifest.files:
        _verify(folder / file.name, file)
    if not run_spec.is_file():
        raise ValueError(f"{run_spec} is missing; say with --run-spec where the job's lies")
    data = run_spec.read_bytes()
    if hashlib.sha256(data).hexdigest() != manifest.run_spec_sha256:
        raise ValueError(f"{run_spec} is not the run spec of this checkpoint's job")
    return CheckpointSource(folder, manifest, RunSpec.from_json(data))


def _verify(path: Path, file: FileEntry) -> None:
    if not path.is_file():
        raise ValueError(f"{path} is missing; fetch the checkpoint again")
    if why := find_difference(path, file):
        raise ValueError(f"{path} is damaged: {why}; fetch it again")


async def _fetch(url: str, root: Path, step: int | None) -> None:
    """Copy HEAD, the run spec and one checkpoint out of the container."""
    from trainer.supervisor.blob.container import BlobAccess, JobContainer  # noqa: PLC0415 - Azure's client
    from trainer.supervisor.input.fetch import fetch_checkpoint  # noqa: PLC0415

    access = BlobAccess()
    try:
        container = JobContainer(access, url)
        head, _ = await container.read(HEAD)
        spec, _ = await container.read(RUN_SPEC)
        entry = pick_committed(Head.from_json(head), step)
        await fetch_checkpoint(container, entry, root / entry.path)
    finally:
        access.close()
    write_atomically(root / RUN_SPEC, spec)
    write_atomically(root / HEAD, head)
