"""Check checkpoints that nodes cannot load, and mark them as broken."""

import hashlib
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.attempts.attempts import AttemptRow
from service.db.core import leases, locks
from service.db.core.leases import Claim
from service.db.jobs import events
from service.db.schema import tables
from service.db.storage import checkpoints
from service.domain.storage.checkpoint_faults import CheckpointFault
from service.operations.storage import manifests
from service.operations.storage.manifests import ManifestUnusable
from service.storage.store import MAX_LISTED, BlobArchived, BlobNotFound, BlobStore
from trainer.contract import MANIFEST, Committed


async def find_fault(store: BlobStore, job_id: str, entry: Committed) -> CheckpointFault | None:
    """Return the first fault that the manifest and the blob list show; reads no data file."""
    try:
        data = await manifests.load(store, job_id, entry.path)
        if hashlib.sha256(data).hexdigest() != entry.manifest_sha256:
            return CheckpointFault(file=MANIFEST, reason="is another one than was committed")
        manifest = await manifests.parse(data)
    except BlobNotFound:
        return CheckpointFault(file=MANIFEST, reason="is gone")
    except BlobArchived:
        return CheckpointFault(file=MANIFEST, reason="is archived")
    except ManifestUnusable as error:
        return CheckpointFault(file=MANIFEST, reason=str(error))
    prefix = f"{entry.path}/"
    items = await store.list_blobs(job_id, prefix, most=MAX_LISTED)
    blobs = {b.name.removeprefix(prefix): (b.size, b.etag) for b in items}
    for file in manifest.files:
        if file.name not in blobs:
            return CheckpointFault(file=file.name, reason="is gone")
        size, etag = blobs[file.name]
        if size != file.size:
            return CheckpointFault(
                file=file.name, reason=f"has {size} bytes instead of {file.size}"
            )
        if etag != file.etag:
            return CheckpointFault(
                file=file.name, reason="was written again since it was committed"
            )
    return None


async def mark_broken(
    conn: AsyncConnection,
    claim: Claim,
    row: AttemptRow,
    broken: Sequence[tuple[Committed, CheckpointFault]],
    resume_from: Committed | None,
    now: datetime,
) -> list[dict[str, object]]:
    """Mark checkpoints as broken, each with its event; ``resume_from`` is where training resumes.

    The mark is the intent: opening the next generation removes them from HEAD, so a service that is
    killed in between loses nothing and repeats no event. Returns the facts of the newly marked
    ones. Raises LeaseLost.
    """
    marked = []
    await leases.write(conn, claim, lease_token=claim.token)
    await locks.lock_rows(conn, tables.jobs, [row.job_id])  # before its checkpoints: as all do
    for entry, fault in broken:
        reason = f"{fault.file} {fault.reason}"
        if await checkpoints.condemn(conn, row.job_id, entry.path, reason):
            marked.append(_fault_facts(entry, fault, resume_from))
            await events.add(
                conn,
                row.job_id,
                now,
                "checkpoint.broken",
                _broken_message(entry, reason, resume_from),
                attempt_id=row.id,
                level="error",
                data=marked[-1],
            )
    return marked


def _broken_message(entry: Committed, reason: str, resume_from: Committed | None) -> str:
    repeated_steps = entry.step - (resume_from.step if resume_from else 0)
    start = (
        f"Training resumes from step {resume_from.step}"
        if resume_from
        else "No other is left, so training starts over from the base model"
    )
    return (
        f"The checkpoint of step {entry.step} cannot be loaded: {reason}. {start}; "
        f"{repeated_steps} steps are repeated."
    )


def _fault_facts(
    entry: Committed, fault: CheckpointFault, resume_from: Committed | None
) -> dict[str, object]:
    step = resume_from.step if resume_from else 0
    facts = {"path": entry.path, "file": fault.file, "reason": fault.reason, "step": entry.step}
    return facts | {"from_step": step, "lost_steps": entry.step - step}
