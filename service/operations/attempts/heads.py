"""HEAD: fence it for a new generation, and copy its content into the database."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import datetime
from types import MappingProxyType

from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.core import locks
from service.db.jobs import events, job_versions, jobs
from service.db.schema import tables
from service.db.storage import checkpoints
from service.storage.store import (
    BlobArchived,
    BlobNotFound,
    BlobStore,
    BlobTooLarge,
    PreconditionFailed,
    StorageError,
)
from trainer.contract import HEAD, MANIFEST, MEASURED, Committed, Head, StepMetrics

log = logging.getLogger(__name__)
MAX_HEAD_BYTES = 2**20  # the 120 checkpoints that a job may keep need a twentieth of it
MAX_MEASUREMENTS_BYTES = 32 * 2**20  # bytes of all steps that a node keeps without contact
_MAX_LINE_BYTES = 4096  # bytes of one step


class HeadRewritten(StorageError):
    """HEAD names a checkpoint by another hash than at first."""


class HeadUnreadable(StorageError):
    """HEAD is missing or invalid, so the committed checkpoints are unknown: a person must act."""


async def read(store: BlobStore, job_id: str) -> tuple[Head, str]:
    """Return HEAD and its ETag. Every job has a HEAD once it was validated."""
    try:
        data, etag = await store.read(job_id, HEAD, most=MAX_HEAD_BYTES)
        return Head.from_json(data), etag
    except BlobNotFound:
        fault = "is gone"
    except BlobArchived:
        fault = "is archived"
    except (BlobTooLarge, ValueError) as error:  # nodes write it
        fault = f"is invalid ({error})"
    raise HeadUnreadable(unreadable_message(job_id, fault))


def unreadable_message(job_id: str, fault: str) -> str:
    """Return the message about an unreadable HEAD and what a person can do."""
    return (
        f"Blob HEAD in container {job_id} {fault}. Its checkpoints may still exist: restore "
        "HEAD (soft delete, versions) or cancel the job."
    )


async def read_measurements(store: BlobStore, job_id: str, entry: Committed) -> list[StepMetrics]:
    """Return the metrics that a node could not report before it committed this checkpoint.

    Skips invalid lines: they come from a node and are no reason to stop the job.
    """
    try:
        data, _ = await store.read(job_id, f"{entry.path}/{MEASURED}", most=MAX_MEASUREMENTS_BYTES)
    except BlobNotFound:  # everything was reported
        return []
    except (BlobTooLarge, BlobArchived) as error:
        log.warning("measured.unreadable", extra={"job": job_id, "cause": str(error)})
        return []
    metrics, bad_lines = await asyncio.to_thread(_parse_measurements, data, entry.step)
    if bad_lines:
        log.warning("measured.unreadable", extra={"job": job_id, "lines": bad_lines})
    return metrics


def _parse_measurements(data: bytes, last_step: int) -> tuple[list[StepMetrics], int]:
    """Return the last row of each step, and the number of unusable lines."""
    metrics: dict[int, StepMetrics] = {}
    bad_lines = 0
    for line in data.splitlines():
        try:
            row = StepMetrics.from_json(line) if len(line) <= _MAX_LINE_BYTES else None
        except ValueError:
            row = None
        if row is None or row.step > last_step:
            bad_lines += 1
        else:
            metrics[row.step] = row
    return list(metrics.values()), bad_lines


async def fence(
    store: BlobStore,
    job_id: str,
    after: int,
    broken: Collection[str] = (),
    forgotten: Callable[[Head], Awaitable[bool]] | None = None,
    anchors: Mapping[str, str] = MappingProxyType({}),
) -> Head:
    """Fence HEAD for the generation that follows number ``after``; return HEAD as written.

    The same write removes the paths in ``broken``. From then on no older generation can commit, so
    the newest checkpoint in the result is the one to load. A service that is killed right after
    this finds HEAD fenced already and uses the same number again. Raises PreconditionFailed when
    HEAD was written meanwhile, or is ahead already: the caller's observation is too old.

    ``forgotten`` is called with a HEAD that is ahead and returns whether a restored database has
    forgotten its generation. Then the number is the one after it.

    ``anchors``: by path, the first hash of each manifest. Raises HeadRewritten where HEAD has
    another.
    """
    head, etag = await read(store, job_id)
    number = after + 1
    if head.generation > after and forgotten is not None and await forgotten(head):
        number = head.generation + 1
    if head.generation > number:
        raise PreconditionFailed(f"HEAD is generation {head.generation}'s, beyond {number}")
    fenced = head.fenced(number, broken)
    if changed := find_rewritten(fenced, anchors):
        raise HeadRewritten(f"HEAD of {job_id} names another {MANIFEST} of {changed[0].path}")
    # Even without a change: only the conditional write proves that no node has committed meanwhile.
    await store.write(job_id, HEAD, fenced.to_json().encode(), if_match=etag)
    return fenced


async def written_at(store: BlobStore, job_id: str) -> datetime | None:
    """Return when HEAD was last written, by Blob's clock; None if there is none."""
    try:
        return (await store.properties(job_id, HEAD)).modified_at
    except BlobNotFound:
        return None


async def record(conn: AsyncConnection, job_id: str, head: Head, now: datetime) -> bool:
    """Copy what is new in HEAD into the database; return whether anything was."""
    known_paths = await checkpoints.retained_paths(conn, [job_id])
    if not _has_changed(head, known_paths.get(job_id, {})):
        return False
    await locks.lock_rows(conn, tables.jobs, [job_id])  # before its checkpoints, as all do
    return await _copy_head(conn, job_id, head, now)


async def record_all(conn: AsyncConnection, heads: Mapping[str, Head], now: datetime) -> None:
    """Copy what is new in the HEADs of many jobs, which the caller has locked."""
    known_paths = await checkpoints.retained_paths(conn, heads)
    for job_id, head in heads.items():
        if _has_changed(head, known_paths.get(job_id, {})):
            await _copy_head(conn, job_id, head, now)


def _has_changed(head: Head, known_paths: Mapping[str, str]) -> bool:
    return head.model is not None or known_paths != list_named(head)


async def _copy_head(conn: AsyncConnection, job_id: str, head: Head, now: datetime) -> bool:
    reasons = list_named(head)
    known_paths = await checkpoints.known_paths(conn, job_id, reasons)
    unknown = [c for c in head.checkpoints if c.path not in known_paths]
    added = [c for c in unknown if await checkpoints.add(conn, job_id, c, reasons[c.path], now)]
    if await checkpoints.match(conn, job_id, reasons, now):
        await job_versions.raise_version(conn, job_id, now)
    for entry in added:
        await events.add(conn, job_id, now, "checkpoint.committed", _commit_message(entry))
    if added:
        await jobs.forget_trainer_errors(conn, job_id)
    if head.model is not None:
        await jobs.remember_result(conn, job_id, head.model.to_plain())
    return bool(added)


def find_rewritten(head: Head, anchors: Mapping[str, str]) -> list[Committed]:
    """Return the checkpoints whose hash in HEAD differs from ``anchors`` (hash by path)."""
    entries = head.checkpoints
    return [c for c in entries if anchors.get(c.path, c.manifest_sha256) != c.manifest_sha256]


def list_named(head: Head) -> dict[str, str]:
    """Return the paths of the checkpoints that HEAD names, each with the reason why it is kept."""
    return {c.path: head.kept_as(c) for c in head.checkpoints}


def _commit_message(entry: Committed) -> str:
    suffix = {"periodic": "", "stop": " before stopping"}.get(entry.kind, "")
    return f"Checkpoint of step {entry.step} committed{suffix} ({entry.size / 2**20:.1f} MiB)"
