"""Batch the writes of concurrent steps: one transaction for all writes of a kind.

A step that lost its lease writes nothing and raises LeaseLost; the others of the batch are written.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from sqlalchemy.ext.asyncio import AsyncEngine

from service.db.attempts import attempt_moves
from service.db.attempts.attempt_moves import ClaimedAttemptMove
from service.db.core import leases
from service.db.core.batching import Batcher
from service.db.core.leases import Claim
from service.db.jobs import job_moves
from service.db.jobs.job_moves import ClaimedJobMove
from service.domain.cloud.rate_limit import Deferral
from service.domain.errors import LeaseLost
from service.instruments import LEASES_LOST
from service.operations.attempts import generations
from service.operations.attempts.generations import Halting
from service.reconciler.attempts import measures

_Release = tuple[Claim, datetime, Deferral | None]


@dataclass(frozen=True, kw_only=True)
class Writes:
    """Releases, moves and halts; one instance per process and kind of row."""

    engine: AsyncEngine
    now: Callable[[], datetime]

    async def release(
        self, claim: Claim, delay: timedelta, deferral: Deferral | None = None
    ) -> None:
        """Release the lease; the row is due again after ``delay`` or with the next hint."""
        await self._releases.do((claim, self.now() + delay, deferral))

    async def move(self, attempt_move: ClaimedAttemptMove) -> None:
        """Write an attempt's move with its event, and wake its job."""
        await self._moves.do(attempt_move)

    async def move_job(self, job_move: ClaimedJobMove) -> None:
        """Write a job's move with its event, except success and failure."""
        await self._job_moves.do(job_move)

    async def halt(self, halting: Halting) -> None:
        """Tell members of a generation to stop."""
        await self._halts.do(halting)

    @cached_property
    def _releases(self) -> Batcher[_Release, None]:
        return Batcher(self._release_all, key=lambda releases: releases[0].row_id)

    @cached_property
    def _moves(self) -> Batcher[ClaimedAttemptMove, None]:
        return Batcher(self._move_all, key=lambda move: move.claim.row_id)

    @cached_property
    def _job_moves(self) -> Batcher[ClaimedJobMove, None]:
        return Batcher(self._move_all_jobs, key=lambda move: move.claim.row_id)

    @cached_property
    def _halts(self) -> Batcher[Halting, None]:
        return Batcher(self._halt_all, key=lambda halting: halting.claim.row_id)

    async def _release_all(self, releases: Sequence[_Release]) -> list[Exception | None]:
        due = [(claim, due_at) for claim, due_at, _ in releases]
        deferrals = {claim.row_id: deferral for claim, _, deferral in releases if deferral}
        async with self.engine.begin() as conn:
            held_ids = await leases.release_all(conn, due, self.now(), deferrals)
        return [_lease_lost(claim, held_ids) for claim, _ in due]

    async def _move_all(self, moves: Sequence[ClaimedAttemptMove]) -> list[Exception | None]:
        async with self.engine.begin() as conn:
            held_ids = await attempt_moves.move_all(conn, moves, self.now())
        measures.observe_attempt_moves(
            [move for move in moves if move.row.id in held_ids], self.now()
        )
        return [_lease_lost(move.claim, held_ids) for move in moves]

    async def _move_all_jobs(self, moves: Sequence[ClaimedJobMove]) -> list[Exception | None]:
        async with self.engine.begin() as conn:
            held_ids = await job_moves.move_all(conn, moves, self.now())
        for move in moves:
            if move.job.id in held_ids:
                measures.observe_job_move(move.claim, move.step.to, self.now())
        return [_lease_lost(move.claim, held_ids) for move in moves]

    async def _halt_all(self, halts: Sequence[Halting]) -> list[None]:
        async with self.engine.begin() as conn:
            await generations.halt_all(conn, halts, self.now())
        return [None] * len(halts)


def _lease_lost(claim: Claim, held_ids: set[str]) -> Exception | None:
    if claim.row_id in held_ids:
        return None
    LEASES_LOST.add(claim.table.name)
    return LeaseLost(f"{claim.table.name} {claim.row_id}")
