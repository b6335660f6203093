"""Launch the next attempts of plain jobs, many in one transaction.

A plain job has one offering, and no deadline, budget or price limit. If something else blocks it (a
shortage, a quota, its project's budget, the queue, a change of the job itself), `launch.py` handles
it, and publishes why it waits.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.db.attempts import attempts
from service.db.core import leases
from service.db.core.batching import Batcher
from service.db.core.leases import Claim
from service.db.jobs import job_versions
from service.db.jobs.jobs import JobRow
from service.db.money import budgets
from service.db.spot import capacity_outages
from service.domain.cloud.fleet import Offering, Price
from service.domain.errors import LeaseLost
from service.domain.ids import new_id
from service.domain.lifecycle.job import Job
from service.domain.planning.plan import Plan
from service.operations.queue import admission
from service.pricing.source import PriceSource, known_prices

_IDLE = timedelta(seconds=30)
_LEFT_FROM_BEFORE = ("waits_for", "moves_since", "returns_since")  # a launch clears them


@dataclass(frozen=True, kw_only=True)
class PlainLaunch:
    """A job, plain or not, with the number of its next attempt."""

    claim: Claim
    job: Job
    row: JobRow
    plan: Plan
    number: int

    @property
    def is_plain(self) -> bool:
        """Whether the job has one offering and nothing limits the choice."""
        terms = self.row.constraints
        limits = (terms.deadline, terms.budget, terms.max_price, self.row.over_budget_at)
        found = self.claim.row._asdict()
        left = any(found.get(name) for name in _LEFT_FROM_BEFORE)
        free = not any(limits) and not terms.regions and not left
        return free and len(self.plan.options) == 1

    @property
    def offering(self) -> Offering:
        """The job's only offering."""
        return self.plan.options[0].offering


@dataclass(frozen=True, kw_only=True)
class BulkLauncher:
    """Launches plain jobs in batches; one instance per process."""

    engine: AsyncEngine
    prices: PriceSource
    now: Callable[[], datetime]

    async def start(self, plain: PlainLaunch) -> bool:
        """Write the attempt; return False, with nothing written, where something blocks it."""
        return await self._batcher.do(plain)

    @cached_property
    def _batcher(self) -> Batcher[PlainLaunch, bool]:
        return Batcher(self._start_all, key=lambda plain: plain.row.id)

    async def _start_all(self, batch: Sequence[PlainLaunch]) -> list[bool | Exception]:
        prices = await known_prices(self.prices, sorted({one.offering for one in batch}))
        now = self.now()
        async with self.engine.begin() as conn:
            unblocked = await self._find_unblocked(conn, batch, now)
            if not unblocked:
                return [False] * len(batch)
            held = await leases.lock_all_claimed(conn, [one.claim for one in unblocked])
            # A job hinted since its claim may have new terms: `launch.py` reads them again.
            begin = [one for one in unblocked if held.get(one.row.id) == one.claim.hints]
            if begin:
                await _write(conn, begin, prices, now)
        lost = {one.row.id for one in unblocked} - held.keys()
        begun = {one.row.id for one in begin}
        return [
            LeaseLost(f"jobs {one.row.id}") if one.row.id in lost else one.row.id in begun
            for one in batch
        ]

    async def _find_unblocked(
        self, conn: AsyncConnection, batch: Sequence[PlainLaunch], now: datetime
    ) -> list[PlainLaunch]:
        """Return the launches that no quota, shortage or budget blocks now."""
        requests = {one.row.id: (one.offering, one.plan.chosen.nodes) for one in batch}
        with_room = await admission.find_jobs_with_room(conn, requests, now)
        refused = await capacity_outages.open_shortages(conn, {one.offering for one in batch})
        limited = await budgets.with_budget(conn, {one.row.project_id for one in batch})
        return [
            one
            for one in batch
            if one.row.id in with_room
            and one.offering not in refused
            and one.row.project_id not in limited
        ]


async def _write(
    conn: AsyncConnection,
    begin: Sequence[PlainLaunch],
    prices: dict[Offering, Price],
    now: datetime,
) -> None:
    await attempts.add_all(conn, [_attempt(one, prices, now) for one in begin])
    await job_versions.raise_all(
        conn, [one.row.id for one in begin], now
    )  # the phase is another one
    await leases.release_all(conn, [(one.claim, now + _IDLE) for one in begin], now)


def _attempt(one: PlainLaunch, prices: dict[Offering, Price], now: datetime) -> dict[str, object]:
    last, option, chosen = one.job.last_attempt, one.plan.options[0], one.plan.chosen
    return attempts.new_row(
        new_id("att", now),
        one.job.id,
        one.number,
        one.offering,
        prices.get(one.offering, option.price),
        now,
        instance_count=chosen.nodes,
        processes_per_node=chosen.processes_per_node,
        refusals=last.refusals if last else 0,
        duds=last.duds if last else 0,
    )
