"""How long a job that Azure refuses machines is likely to wait, for its forecast."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncEngine

from service.db import experience, shortages
from service.db.job_facts import Around
from service.domain import droughts, forecast
from service.domain.choice import gpus_of
from service.domain.fleet import Offering, Price
from service.domain.forecast import ToCome
from service.domain.option import Option
from service.domain.plan import Plan
from service.domain.states import AttemptState, CapacityType, JobState
from service.domain.terms import OnRisk, Terms
from service.pricing.source import PriceSource, PricesUnavailable

_WAITING = {JobState.QUEUED, JobState.RECOVERING}
_GIVEN = {AttemptState.STARTING, AttemptState.RUNNING}


async def seen(engine: AsyncEngine, prices: PriceSource, around: Around, now: datetime) -> Around:
    """With its wait, if all of Spot that it may take refuses; the prices are today's."""
    facts = around.facts
    if facts.state not in _WAITING or (facts.attempt and facts.attempt.state in _GIVEN):
        return around
    terms, plan = Terms.from_dict(around.job.terms), Plan.from_dict(around.job.plan)
    quoted = await _quoted(prices, plan.options) if terms.max_price is not None else {}
    kept = [o.offering for o in plan.options if not _forbids(terms, o, quoted)]
    spots = [o for o in kept if o.capacity_type is CapacityType.SPOT]
    wait = await _for_one_of(engine, spots, plan.chosen.nodes, now) if spots else None
    if wait is not None and terms.deadline is not None and len(kept) > len(spots):
        wait = _no_longer_than(terms.deadline, terms, wait, around, now)
    return replace(around, wait=wait)


async def _for_one_of(
    engine: AsyncEngine, spots: Sequence[Offering], nodes: int, now: datetime
) -> ToCome | None:
    """None while one of them has not been refused, or not lately."""
    async with engine.connect() as conn:
        refused = await shortages.of(conn, spots)
        if len(refused) < len(spots) or not droughts.lasts(refused.values(), now):
            return None
        past = await experience.answered(conn, spots, nodes, now)
    return droughts.wait(list(refused.values()), past, now)


def _forbids(terms: Terms, option: Option, quoted: Mapping[Offering, Price]) -> bool:
    """As `choice.choose` has it."""
    place, price = option.offering, quoted.get(option.offering, option.price)
    return bool(terms.forbids(place, price, gpus_of(place.vm_size)))


async def _quoted(prices: PriceSource, options: Sequence[Option]) -> Mapping[Offering, Price]:
    try:
        return await prices.prices([option.offering for option in options])
    except PricesUnavailable:  # the plan's hold
        return {}


def _no_longer_than(
    deadline: datetime, terms: Terms, wait: ToCome, around: Around, now: datetime
) -> ToCome:
    """A job that may buy on demand waits while there is time to spare."""
    if terms.on_deadline_risk is not OnRisk.SWITCH:
        return wait
    return wait.at_most(forecast.left_until(deadline, now) - around.to_come.p90)
