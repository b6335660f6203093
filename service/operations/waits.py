"""How long a job that Azure refuses machines is likely to wait, for its forecast."""

from dataclasses import replace
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from service.db import experience, shortages
from service.db.job_facts import Around
from service.domain import droughts, forecast
from service.domain.fleet import Offering
from service.domain.forecast import ToCome
from service.domain.states import AttemptState, CapacityType, JobState
from service.domain.terms import OnRisk, Terms

_WAITING = {JobState.QUEUED, JobState.RECOVERING}
_GIVEN = {AttemptState.STARTING, AttemptState.RUNNING}


async def seen(conn: AsyncConnection, around: Around, now: datetime) -> Around:
    """With its wait, if all of Spot refuses it: a job that asks once more may be refused again."""
    facts = around.facts
    if facts.state not in _WAITING or (facts.attempt and facts.attempt.state in _GIVEN):
        return around
    options, terms = around.job.plan["options"], Terms.from_dict(around.job.terms)
    kept = [_offering(o) for o in options if not terms.regions or o["region"] in terms.regions]
    spots = [o for o in kept if o.capacity_type is CapacityType.SPOT]
    if not spots:
        return around
    refused = await shortages.of(conn, spots)
    if len(refused) < len(spots):
        return around
    past = await experience.past(conn, spots, options[0]["nodes"], now)
    wait = droughts.wait(list(refused.values()), past, now)
    if wait is not None and terms.deadline is not None and len(kept) > len(spots):
        wait = _no_longer_than(terms.deadline, terms, wait, around, now)
    return replace(around, wait=wait)


def _no_longer_than(
    deadline: datetime, terms: Terms, wait: ToCome, around: Around, now: datetime
) -> ToCome:
    """A job that may buy on demand waits while there is time to spare."""
    if terms.on_deadline_risk is not OnRisk.SWITCH:
        return wait
    return wait.at_most(forecast.left_until(deadline, now) - around.to_come.p90)


def _offering(option: dict[str, str]) -> Offering:
    capacity = CapacityType(option["capacity_type"])
    return Offering(region=option["region"], vm_size=option["vm_size"], capacity_type=capacity)
