"""Forecasts of how long a job waits for machines: now, and after later evictions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from contract.choices import Engine
from service.db.attempts import machine_history
from service.db.jobs.job_facts import JobOverview
from service.db.queue import queue_forecast_rows as turn_rows
from service.db.queue import quotas
from service.db.spot import capacity_outages as shortages
from service.domain.cloud.fleet import Offering, Price
from service.domain.lifecycle.constraints import JobConstraints
from service.domain.placement import capacity_outages
from service.domain.placement.capacity_history import CapacityHistory
from service.domain.placement.offering_choice import gpus_per_machine
from service.domain.planning import forecast
from service.domain.queue import queue_forecast
from service.domain.queue.admission import QueueStanding, RegionCores, RegionRequest, WaitReason
from service.domain.queue.queue_forecast import AdmissionForecast, QueueEntry
from service.domain.states import AttemptState, CapacityType, JobState
from service.operations.queue import admission
from service.pricing.source import PriceSource, known_prices

_WAITING = {JobState.QUEUED, JobState.RECOVERING}
_LIVE = {*_WAITING, JobState.RUNNING}
_HAS_MACHINES = {AttemptState.STARTING, AttemptState.RUNNING}
_HISTORY_LIFETIME = timedelta(minutes=5)  # of past outages; the current one is read each time

_HistoryKey = tuple[frozenset[Offering], int]


@dataclass(frozen=True, kw_only=True)
class WaitForecasts:
    """Forecasts of one process; past capacity outages are cached for some minutes."""

    engine: AsyncEngine
    prices: PriceSource
    cached_histories: dict[_HistoryKey, tuple[datetime, CapacityHistory]] = field(
        default_factory=dict
    )

    async def add_forecasts(self, overview: JobOverview, now: datetime) -> JobOverview:
        """Return the job with forecasts of queue, capacity outage and later evictions."""
        job, facts = overview.job, overview.facts
        if facts.state not in _LIVE or overview.on_demand:
            return overview
        if facts.queue is not None:
            admission_forecast = await self._forecast_queue(job.id, facts.queue, now)
            overview = replace(overview, admission_forecast=admission_forecast)
        elastic = job.plan.get("elastic")
        requests = facts.queue is None and _is_waiting_for_machines(overview)
        if elastic and not requests and facts.queue is None:  # it goes on with fewer machines
            return overview
        terms, nodes = job.constraints, job.plan["options"][0]["nodes"]
        affordable = await self._affordable(terms, job.plan)
        spots = [o for o in affordable if o.capacity_type is CapacityType.SPOT]
        if not spots:
            return overview
        if len(affordable) > len(spots):
            overview = replace(overview, slack=_spot_wait_limit(terms, overview, now))
        if requests:
            overview = await self._add_outage(overview, spots, nodes, now)
            if overview.wait is None and job.waits_for:
                admission_forecast = await self._forecast_cores(overview, now)
                overview = replace(overview, admission_forecast=admission_forecast)
        if not elastic:
            history = await self._read_capacity_history(spots, nodes, now)
            overview = replace(
                overview, aftermath=capacity_outages.expected_aftermath(history, len(spots))
            )
        return overview

    async def _add_outage(
        self, overview: JobOverview, spots: Sequence[Offering], nodes: int, now: datetime
    ) -> JobOverview:
        """Add the forecast of a capacity outage while every Spot offering of the job is refused."""
        async with self.engine.connect() as conn:
            refused = await shortages.open_shortages(conn, spots)
            if len(refused) < len(spots) or not capacity_outages.is_every_offering_in_backoff(
                refused.values(), nodes, now
            ):
                return overview
            history = await machine_history.request_outcomes(conn, spots, nodes, now)
        self._cache(spots, nodes, now, history)
        return replace(
            overview, wait=capacity_outages.expected_wait(list(refused.values()), history, now)
        )

    async def _forecast_queue(
        self, job_id: str, standing: QueueStanding, now: datetime
    ) -> AdmissionForecast | None:
        """Return when the job is admitted, by the forecasts of the jobs that hold what it needs."""
        if not queue_forecast.is_forecastable(standing):
            return queue_forecast.explain_no_forecast(standing)
        async with self.engine.connect() as conn:
            queue = await turn_rows.queue_up_to(conn, job_id, standing.position or 1)
            if not queue:
                return None
            regions = await quotas.regions(conn, now)
            is_passed_over = standing.code is WaitReason.GANG
            return await _forecast_admission(conn, queue, regions, now, passed_over=is_passed_over)

    async def _forecast_cores(
        self, overview: JobOverview, now: datetime
    ) -> AdmissionForecast | None:
        """Return when cores become free for an admitted job whose regions have none."""
        job, wants = overview.job, admission.make_gang(overview.job).wants
        requests = QueueEntry(
            project_id=job.project_id, since=now, wants=wants, duration=overview.remaining_time
        )
        async with self.engine.connect() as conn:
            regions = await quotas.regions(conn, now, besides=job.id)
            if any(_fits(want, regions.get(want.region)) for want in wants):
                return None
            return await _forecast_admission(conn, [requests], regions, now, besides=job.id)

    async def _read_capacity_history(
        self, spots: Sequence[Offering], nodes: int, now: datetime
    ) -> CapacityHistory:
        """Return the recent answers to requests for these offerings, at most some minutes old."""
        at, history = self.cached_histories.get((frozenset(spots), nodes), (None, None))
        if at is None or history is None or now - at > _HISTORY_LIFETIME:
            async with self.engine.connect() as conn:
                history = await machine_history.request_outcomes(conn, spots, nodes, now)
            self._cache(spots, nodes, now, history)
        return history

    def _cache(
        self, spots: Sequence[Offering], nodes: int, now: datetime, history: CapacityHistory
    ) -> None:
        for old in [
            key for key, (at, _) in self.cached_histories.items() if now - at > _HISTORY_LIFETIME
        ]:
            del self.cached_histories[old]
        self.cached_histories[frozenset(spots), nodes] = (now, history)

    async def _affordable(self, terms: JobConstraints, plan: Mapping[str, Any]) -> list[Offering]:
        """Return the job's offerings within its limits at today's prices."""
        offerings = [
            _offering(o["region"], o["vm_size"], o["capacity_type"], o.get("engine"))
            for o in plan["options"]
        ]
        prices: dict[Offering, Price] = {}
        if terms.max_price is not None:
            prices = dict(zip(offerings, map(_price, plan["options"]), strict=True))
            prices |= await known_prices(self.prices, offerings)
        return [
            o
            for o in dict.fromkeys(offerings)
            if not terms.forbids(o, prices.get(o), gpus_per_machine(o.vm_size))
        ]


async def _forecast_admission(
    conn: AsyncConnection,
    queue: Sequence[QueueEntry],
    regions: Mapping[str, RegionCores],
    now: datetime,
    *,
    besides: str = "",
    passed_over: bool = False,
) -> AdmissionForecast:
    """Forecast the admission of the last job in ``queue`` from the holders of its cores."""
    wanted_regions = {want.region for requests in queue for want in requests.wants}
    free = {region: cores.free for region, cores in regions.items() if region in wanted_regions}
    holds = await turn_rows.core_holds(conn, free, now, besides=besides)
    if holds is None:
        return queue_forecast.TOO_MANY
    return queue_forecast.forecast_admission(queue, free, holds, now, passed_over=passed_over)


def _fits(want: RegionRequest, cores: RegionCores | None) -> bool:
    return not want.cores or cores is None or want.cores <= cores.free


def _is_waiting_for_machines(overview: JobOverview) -> bool:
    attempt = overview.facts.attempt
    return overview.facts.state in _WAITING and not (attempt and attempt.state in _HAS_MACHINES)


@lru_cache(maxsize=4096)  # a job is shown too often to make them anew
def _offering(region: str, vm_size: str, capacity_type: str, engine: str | None) -> Offering:
    return Offering(
        region=region,
        vm_size=vm_size,
        capacity_type=CapacityType(capacity_type),
        engine=Engine(engine or Engine.SCALE_SET),
    )


def _price(option: Mapping[str, Any]) -> Price:
    """Return the price of an option of a stored plan."""
    hourly, on_demand = (Decimal(option[name]) for name in ("hourly", "on_demand_hourly"))
    return Price(hourly=hourly, on_demand_hourly=on_demand)


def _spot_wait_limit(terms: JobConstraints, overview: JobOverview, now: datetime) -> float | None:
    """Return how many seconds a job may wait before it buys on demand; None: no limit."""
    if terms.deadline is None or not terms.switches:
        return None
    return forecast.seconds_until(terms.deadline, now) - overview.remaining_time.p90
