"""Opens generations: HEAD is fenced for each by itself, what it reads and writes many share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from sqlalchemy.ext.asyncio import AsyncEngine

from service.db import findings as doubts
from service.db import metrics
from service.db.attempts import AttemptRow
from service.db.findings import Before
from service.db.leases import Claim
from service.db.together import Together
from service.domain.attempt import Move, OpenGeneration, Seen
from service.operations import generations, heads
from service.operations.generations import Opening
from service.reconciler import findings
from service.storage.store import BlobStore, PreconditionFailed
from trainer.contract import Committed


@dataclass(frozen=True, kw_only=True)
class Openings:
    """One per process."""

    engine: AsyncEngine
    store: BlobStore
    now: Callable[[], datetime]

    async def open(
        self, claim: Claim, row: AttemptRow, step: OpenGeneration, seen: Seen, after: int
    ) -> bool | Move:
        """Fence HEAD, then write the row; the lease goes back with it.

        ``after``: the job's newest number, read with what was ``seen``. A worker that comes late
        with it sees HEAD ahead and fences nothing away.
        False: somebody was quicker, so look again. A move: only others can tell what to load.
        """
        known = await self._reads.do(row.job_id)
        assert known.run_spec_sha256, "a job is prepared before its first attempt"
        broken: frozenset[str] | Move = known.broken
        if known.doubted:
            given = (self.engine, self.store, claim, row, known.broken, self.now())
            broken = await findings.broken(*given)
        if isinstance(broken, Move):
            return broken
        try:
            head = await heads.fence(self.store, row.job_id, after, broken)
        except PreconditionFailed:
            return False
        if head.model is not None:
            return False
        await self.keep_measured(row, head.newest)
        opening = Opening(
            claim=claim,
            row=row,
            step=step,
            head=head,
            run_spec_sha256=known.run_spec_sha256,
            before=seen.generation,
            halted_at=seen.halted_at,
        )
        await self._writes.do(opening)
        return True

    async def keep_measured(self, row: AttemptRow, entry: Committed | None) -> None:
        """Nobody does the steps before ``entry`` again: what was measured in them is there now."""
        if entry is None:
            return
        if told := await heads.measured(self.store, row.job_id, entry):
            async with self.engine.begin() as conn:
                await metrics.add(conn, row.job_id, entry.generation, told)

    @cached_property
    def _reads(self) -> Together[str, Before]:
        return Together(self._read_all, key=str)

    @cached_property
    def _writes(self) -> Together[Opening, None]:
        return Together(self._write_all, key=lambda one: one.row.id)

    async def _read_all(self, job_ids: Sequence[str]) -> list[Before | Exception]:
        async with self.engine.connect() as conn:
            known = await doubts.before(conn, job_ids)
        return [known[job_id] for job_id in job_ids]

    async def _write_all(self, openings: Sequence[Opening]) -> list[None]:
        async with self.engine.begin() as conn:
            await generations.open_all(conn, openings, self.now())
        return [None] * len(openings)
