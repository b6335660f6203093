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

_INTERVAL = timedelta(seconds=30)
_COLUMNS_CLEARED_BY_LAUNCH = ("waits_for", "moves_since", "returns_since")  # a launch clears them


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
        columns = self.claim.row._asdict()
        has_leftovers = any(columns.get(name) for name in _COLUMNS_CLEARED_BY_LAUNCH)
        free = not any(limits) and not terms.regions and not has_leftovers
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
        prices = await known_prices(self.prices, sorted({launch.offering for launch in batch}))
        now = self.now()
        async with self.engine.begin() as conn:
            unblocked = await self._find_unblocked(conn, batch, now)
            if not unblocked:
                return [False] * len(batch)
            hints = await leases.lock_all_claimed(conn, [launch.claim for launch in unblocked])
            # A job hinted since its claim may have new terms: `launch.py` reads them again.
            ready = [
                launch for launch in unblocked if hints.get(launch.row.id) == launch.claim.hints
            ]
            if ready:
                await _write(conn, ready, prices, now)
        lost_ids = {launch.row.id for launch in unblocked} - hints.keys()
        started_ids = {launch.row.id for launch in ready}
        return [
            LeaseLost(f"jobs {launch.row.id}")
            if launch.row.id in lost_ids
            else launch.row.id in started_ids
            for launch in batch
        ]

    async def _find_unblocked(
        self, conn: AsyncConnection, batch: Sequence[PlainLaunch], now: datetime
    ) -> list[PlainLaunch]:
        """Return the launches that no quota, shortage or budget blocks now."""
        requests = {launch.row.id: (launch.offering, launch.plan.chosen.nodes) for launch in batch}
        with_room = await admission.find_jobs_with_room(conn, requests, now)
        refused = await capacity_outages.open_shortages(conn, {launch.offering for launch in batch})
        limited = await budgets.with_budget(conn, {launch.row.project_id for launch in batch})
        return [
            launch
            for launch in batch
            if launch.row.id in with_room
            and launch.offering not in refused
            and launch.row.project_id not in limited
        ]


async def _write(
    conn: AsyncConnection,
    launches: Sequence[PlainLaunch],
    prices: dict[Offering, Price],
    now: datetime,
) -> None:
    await attempts.add_all(conn, [_attempt(launch, prices, now) for launch in launches])
    # The jobs' phase has changed.
    await job_versions.raise_all(conn, [launch.row.id for launch in launches], now)
    await leases.release_all(conn, [(launch.claim, now + _INTERVAL) for launch in launches], now)


def _attempt(
    launch: PlainLaunch, prices: dict[Offering, Price], now: datetime
) -> dict[str, object]:
    last, option, chosen = launch.job.last_attempt, launch.plan.options[0], launch.plan.chosen
    return attempts.new_row(
        new_id("att", now),
        launch.job.id,
        launch.number,
        launch.offering,
        prices.get(launch.offering, option.price),
        now,
        instance_count=chosen.nodes,
        processes_per_node=chosen.processes_per_node,
        refusals=last.refusals if last else 0,
        duds=last.duds if last else 0,
    )
