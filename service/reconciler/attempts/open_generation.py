"""Open generations: fence each HEAD alone, and share the database transactions among many.

HEAD may be ahead of the database, for one of three reasons. The worker is late: it observes again.
An earlier worker was killed after its fence, so its generation never began: the same number is
used. Or the database was restored, or lost its last commits, and has forgotten a generation that
began: the next number is the one after HEAD's.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, partial
from operator import itemgetter

from sqlalchemy.exc import DataError
from sqlalchemy.ext.asyncio import AsyncEngine

from service.db.attempts import generations as rows
from service.db.attempts import heartbeats
from service.db.attempts.attempts import AttemptRow
from service.db.attempts.heartbeats import GenerationProgress
from service.db.core import leases
from service.db.core.batching import Batcher
from service.db.core.leases import Claim
from service.db.jobs import jobs, step_metrics
from service.db.storage import checkpoint_fault_reports as doubts
from service.db.storage.checkpoint_fault_reports import CheckpointHistory
from service.domain.errors import LeaseLost
from service.domain.lifecycle.attempt import (
    HEAD_UNREADABLE,
    TOO_LONG_UNREADABLE,
    AttemptView,
    MoveAttempt,
    OpenGeneration,
)
from service.domain.planning.checkpoint_interval import SaveHistory
from service.domain.reporting.progress import progress_of
from service.domain.states import AttemptState, Outcome
from service.instruments import LOST_STEPS, LOST_TIME
from service.operations.attempts import generations, heads
from service.operations.attempts.generations import Opening
from service.reconciler.attempts import findings
from service.storage.store import BlobStore, PreconditionFailed, StorageError
from trainer.contract import Committed, Head

log = logging.getLogger(__name__)
_GIVE_UP_MOVE = MoveAttempt(
    to=AttemptState.TERMINATING, outcome=Outcome.UNRESPONSIVE, reason=HEAD_UNREADABLE
)


@dataclass(frozen=True, kw_only=True)
class GenerationOpener:
    """Fences HEAD and writes generation rows; one instance per process."""

    engine: AsyncEngine
    store: BlobStore
    now: Callable[[], datetime]
    # Attempts whose next generation could not be opened: since when, and when it was last tried.
    _opening: dict[str, tuple[datetime, datetime]] = field(default_factory=dict)

    async def open(
        self, claim: Claim, row: AttemptRow, step: OpenGeneration, view: AttemptView, after: int
    ) -> bool | MoveAttempt:
        """Open a generation as `_open` does, or give the attempt up when that has failed for long.

        A node that holds a blob lease on HEAD, which its SAS allows, could block it for ever.
        """
        try:
            result = await self._open(claim, row, step, view, after)
        except (LeaseLost, StorageError):
            raise
        except Exception:  # nodes write what is read here
            if not self._has_tried_long(row):
                raise
            log.exception("head.unreadable", extra={"job": row.job_id, "attempt": row.id})
            result = _GIVE_UP_MOVE
        if not result and self._has_tried_long(row):
            result = _GIVE_UP_MOVE
        if result:
            self._opening.pop(row.id, None)
        return result

    def _has_tried_long(self, row: AttemptRow) -> bool:
        """Return whether opening a generation has failed for so long that the attempt must end."""
        now = self.now()
        for attempt_id in [
            i for i, (_, at) in self._opening.items() if now - at > TOO_LONG_UNREADABLE
        ]:
            del self._opening[attempt_id]
        first, _ = self._opening.get(row.id, (now, now))
        self._opening[row.id] = first, now
        return now - first > TOO_LONG_UNREADABLE

    async def _open(
        self, claim: Claim, row: AttemptRow, step: OpenGeneration, view: AttemptView, after: int
    ) -> bool | MoveAttempt:
        """Fence HEAD, then write the generation's row and release the lease.

        ``after``: the job's newest number, read with ``view``. A late worker finds HEAD ahead and
        its lease lost, and fences nothing. Returns False if another worker was quicker: observe
        again. Returns a move if only other machines can tell which checkpoint is whole.
        """
        history, saves = await self._reads.do((row.job_id, row.id))
        assert history.run_spec_sha256, "a job is prepared before its first attempt"
        broken: frozenset[str] | MoveAttempt = history.broken
        arguments = (self.engine, self.store, claim, row, history, self.now())
        if history.doubted:
            broken = await findings.find_broken_checkpoints(*arguments)
        if isinstance(broken, MoveAttempt):
            return broken
        try:
            forgotten = partial(self._is_forgotten, claim, row, view, after)
            fencing = (self.store, row.job_id, after, broken, forgotten, history.anchors)
            head = await heads.fence(*fencing)
        except PreconditionFailed:
            return False
        except heads.HeadRewritten:
            await findings.find_broken_checkpoints(*arguments)
            return False
        if head.model is not None:
            return False
        await self.record_measurements(row, head.newest)
        opening = Opening(
            claim=claim,
            row=row,
            step=step,
            head=head,
            run_spec_sha256=history.run_spec_sha256,
            previous=view.generation,
            halted_at=view.halted_at,
            last_known_number=after,
            save_history=saves,
        )
        await self._writes.do(opening)
        return True

    async def _is_forgotten(
        self, claim: Claim, row: AttemptRow, view: AttemptView, after: int, head: Head
    ) -> bool:
        """Return whether ``head``, which is ahead, is of a generation that began and was forgotten.

        `heads.fence` calls this between its read and its conditional write of HEAD. So if this
        worker still holds the lease and knows the newest row, no other worker can come first.
        Raises LeaseLost, and PreconditionFailed if there is a newer row.
        """
        async with self.engine.connect() as conn:
            await leases.check(conn, claim)
            newest = await rows.newest_number(conn, row.job_id)
            job = await jobs.find(conn, row.job_id)
        if newest != after:
            raise PreconditionFailed(f"generation {newest} is open")
        if _has_begun(head, after, view):
            return True
        # An attempt fences HEAD once its machines are there. So an older HEAD is another attempt's,
        # which has no row any more. A store without a clock dates it before its job.
        at = await heads.written_at(self.store, row.job_id)
        return at is not None and job is not None and job.created_at <= at < row.since

    async def record_last_measurements(self, row: AttemptRow) -> None:
        """Keep the final model's unreported metrics; skip them if HEAD is unreadable by now."""
        try:
            head, _ = await heads.read(self.store, row.job_id)
            await self.record_measurements(row, head.model)
        except heads.HeadUnreadable as fault:
            log.warning("measured.unreadable", extra={"job": row.job_id, "cause": str(fault)})

    async def record_measurements(self, row: AttemptRow, entry: Committed | None) -> None:
        """Record unreported metrics of the steps before ``entry``: no step is repeated.

        Metrics that cannot be stored are skipped: nodes write them, so they may be invalid.
        """
        if entry is None:
            return
        try:
            await self._record_measurements(row, entry)
        except (DataError, ValueError, OverflowError):
            log.warning("measured.unreadable", extra={"job": row.job_id}, exc_info=True)

    async def _record_measurements(self, row: AttemptRow, entry: Committed) -> None:
        if measurements := await heads.read_measurements(self.store, row.job_id, entry):
            async with self.engine.begin() as conn:
                await step_metrics.add(conn, row.job_id, entry.generation, measurements)
                progress = GenerationProgress(
                    job_id=row.job_id,
                    generation=entry.generation,
                    step=max(m.step for m in measurements),
                    changes=progress_of(measurements),
                )
                await heartbeats.record_progress(conn, [progress], self.now())

    @cached_property
    def _reads(self) -> Batcher[tuple[str, str], tuple[CheckpointHistory, SaveHistory | None]]:
        return Batcher(self._read_all, key=itemgetter(0))

    @cached_property
    def _writes(self) -> Batcher[Opening, None]:
        return Batcher(self._write_all, key=lambda opening: opening.row.id)

    async def _read_all(
        self, attempts: Sequence[tuple[str, str]]
    ) -> list[tuple[CheckpointHistory, SaveHistory | None] | Exception]:
        """Read checkpoint faults and save histories, given (job id, attempt id) pairs."""
        async with self.engine.connect() as conn:
            histories = await doubts.histories(conn, [job_id for job_id, _ in attempts])
            saves = await rows.save_histories(conn, [attempt_id for _, attempt_id in attempts])
        return [(histories[job_id], saves.get(attempt_id)) for job_id, attempt_id in attempts]

    async def _write_all(self, openings: Sequence[Opening]) -> list[None]:
        async with self.engine.begin() as conn:
            losses = await generations.open_all(conn, openings, self.now())
        for loss in losses:
            LOST_STEPS.add(amount=loss.steps)
            LOST_TIME.add(loss.capacity_type, amount=loss.machine_seconds)
        return [None] * len(openings)


def _has_begun(head: Head, after: int, view: AttemptView) -> bool:
    """Return whether a generation after number ``after`` has left a trace.

    A worker that was killed uses the same number again. So a HEAD two numbers ahead proves that a
    row was written.
    """
    entries = (*head.checkpoints, *((head.model,) if head.model else ()))
    traces = [entry.generation for entry in entries] + [node.generation for node in view.nodes]
    return head.generation > after + 1 or any(number > after for number in traces)
