"""How long a job is likely to wait for machines: now, and after evictions that are to come."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine

from service.db import experience, quotas, shortages
from service.db import turns as turn_rows
from service.db.job_facts import Around
from service.domain import droughts, forecast, turns
from service.domain.admission import Standing
from service.domain.answers import Past
from service.domain.choice import gpus_of
from service.domain.fleet import Offering, Price
from service.domain.states import AttemptState, CapacityType, JobState
from service.domain.terms import OnRisk, Terms
from service.domain.turns import Asks, Turn
from service.operations import admission
from service.pricing.source import PriceSource, PricesUnavailable

_WAITING = {JobState.QUEUED, JobState.RECOVERING}
_GOES_ON = {*_WAITING, JobState.RUNNING}
_GIVEN = {AttemptState.STARTING, AttemptState.RUNNING}
_FRESH = timedelta(minutes=5)  # what a month has told of droughts; of the one that lasts, nothing

_Spots = tuple[frozenset[Offering], int]


@dataclass(frozen=True, kw_only=True)
class Waits:
    """Of one process: what was told of droughts is kept for minutes, for thousands of jobs."""

    engine: AsyncEngine
    prices: PriceSource
    known: dict[_Spots, tuple[datetime, Past]] = field(default_factory=dict)

    async def seen(self, around: Around, now: datetime) -> Around:
        """With its waits: as long as all of Spot that it may take refuses, and from then on."""
        job, facts = around.job, around.facts
        if facts.state not in _GOES_ON or around.on_demand:
            return around
        if facts.queue is not None:
            around = replace(around, turn=await self._turn(job.id, facts.queue, now))
        terms, nodes = Terms.from_dict(job.terms), job.plan["options"][0]["nodes"]
        kept = await self._kept(terms, _offerings(job.plan))
        spots = [o for o in kept if o.capacity_type is CapacityType.SPOT]
        if not spots:
            return around
        if len(kept) > len(spots):
            around = replace(around, slack=_slack(terms, around, now))
        if facts.queue is None and _waits_now(around):
            around = await self._waiting(around, spots, nodes, now)
            if around.wait is None and job.waits_for:
                around = replace(around, turn=await self._short(around, now))
        if not job.plan.get("elastic"):  # that goes on with fewer machines
            past = await self._past(spots, nodes, now)
            around = replace(around, aftermath=droughts.after_evictions(past, len(spots)))
        return around

    async def _waiting(
        self, around: Around, spots: Sequence[Offering], nodes: int, now: datetime
    ) -> Around:
        """Without a wait while one of them has not been refused, or not lately."""
        async with self.engine.connect() as conn:
            refused = await shortages.of(conn, spots)
            if len(refused) < len(spots) or not droughts.lasts(refused.values(), now):
                return around
            past = await experience.answered(conn, spots, nodes, now)
        self._keep(spots, nodes, now, past)
        return replace(around, wait=droughts.wait(list(refused.values()), past, now))

    async def _turn(self, job_id: str, standing: Standing, now: datetime) -> Turn | None:
        """When it is let in, by what those are forecast that hold what it needs."""
        if not turns.is_foreseen(standing):
            return turns.unforeseen(standing)
        async with self.engine.connect() as conn:
            queue = await turn_rows.queue_to(conn, job_id, standing.position or 1)
            free = {name: c.free for name, c in (await quotas.regions(conn, now)).items()}
            holds = await turn_rows.holding(conn, free)
        return turns.turn(queue, free, holds) if queue else None

    async def _short(self, around: Around, now: datetime) -> Turn | None:
        """The same of a job that was let in, and whose next region has no cores for it."""
        wants = admission.gang_of(around.job).wants
        async with self.engine.connect() as conn:
            known = await quotas.regions(conn, now, besides=around.job.id)
            free = {name: cores.free for name, cores in known.items()}
            if any(want.cores <= free.get(want.region, want.cores) for want in wants):
                return None
            holds = await turn_rows.holding(conn, free)
        return turns.turn([Asks(wants=wants, lasts=around.to_come)], free, holds)

    async def _past(self, spots: Sequence[Offering], nodes: int, now: datetime) -> Past:
        """What requests for them were answered, a few minutes ago."""
        at, past = self.known.get((frozenset(spots), nodes), (None, None))
        if at is None or past is None or now - at > _FRESH:
            async with self.engine.connect() as conn:
                past = await experience.answered(conn, spots, nodes, now)
            self._keep(spots, nodes, now, past)
        return past

    def _keep(self, spots: Sequence[Offering], nodes: int, now: datetime, past: Past) -> None:
        for old in [key for key, (at, _) in self.known.items() if now - at > _FRESH]:
            del self.known[old]
        self.known[frozenset(spots), nodes] = (now, past)

    async def _kept(self, terms: Terms, planned: dict[Offering, Price]) -> list[Offering]:
        """Those that may be taken at today's prices, as `choice.choose` has it."""
        if terms.max_price is not None:
            with contextlib.suppress(PricesUnavailable):  # then the plan's hold
                planned |= await self.prices.prices(list(planned))
        return [
            o for o, price in planned.items() if not terms.forbids(o, price, gpus_of(o.vm_size))
        ]


def _waits_now(around: Around) -> bool:
    attempt = around.facts.attempt
    return around.facts.state in _WAITING and not (attempt and attempt.state in _GIVEN)


def _offerings(plan: Mapping[str, Any]) -> dict[Offering, Price]:
    """Those of a plan as it is stored; a job is shown too often to read all of it."""
    found = {}
    for told in plan["options"]:
        capacity = CapacityType(told["capacity_type"])
        place = Offering(region=told["region"], vm_size=told["vm_size"], capacity_type=capacity)
        hourly, listed = (Decimal(told[name]) for name in ("hourly", "on_demand_hourly"))
        found[place] = Price(hourly=hourly, on_demand_hourly=listed)
    return found


def _slack(terms: Terms, around: Around, now: datetime) -> float | None:
    """A job that may buy on demand for its deadline waits while there is time to spare."""
    if terms.deadline is None or terms.on_deadline_risk is not OnRisk.SWITCH:
        return None
    return forecast.left_until(terms.deadline, now) - around.to_come.p90
