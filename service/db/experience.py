"""How long machines were held where: what attempts of all jobs have lived through."""

from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from sqlalchemy import Row, Select, case, func, select, tuple_, union_all
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db import market
from service.db.tables import attempts
from service.domain.ages import Ages
from service.domain.answers import NO_PAST, Answer, Past
from service.domain.choice import Lived
from service.domain.fleet import Offering
from service.domain.states import CapacityType, Outcome
from service.domain.terms import RETURNS
from service.domain.traces import place_of

SEEN = timedelta(days=30)  # older lives say little of today
_MOST = 500  # lives of one look
_c = attempts.c


async def of(
    conn: AsyncConnection, offerings: Iterable[Offering], now: datetime
) -> dict[Offering, Lived]:
    """By offering, for those where machines were ever held.

    A life ends with what is known last of the attempt: a few minutes late once it is torn down.
    """
    keys = sorted({(o.region, o.vm_size, str(o.capacity_type)) for o in offerings})
    place = (_c.region, _c.vm_size, _c.capacity_type)
    ended = case((_c.outcome.is_not(None), _c.since), else_=now)
    query = (
        select(*place, _c.outcome, _c.since, func.extract("epoch", ended - _c.ran_at).label("life"))
        .where(tuple_(*place).in_(keys), _c.ran_at.is_not(None), _c.created_at > now - SEEN)
        .order_by(_c.created_at.desc())
        .limit(_MOST)
    )
    lives: dict[Offering, list[tuple[float, bool]]] = {}
    evicted: dict[Offering, float] = {}
    for row in await conn.execute(query):
        capacity = CapacityType(row.capacity_type)
        offering = Offering(region=row.region, vm_size=row.vm_size, capacity_type=capacity)
        taken = row.outcome == Outcome.EVICTED
        lives.setdefault(offering, []).append((float(row.life) / 3600, taken))
        if taken:
            ago = (now - row.since).total_seconds()
            evicted[offering] = min(ago, evicted.get(offering, ago))
    return {o: Lived(holds=Ages.of(seen), evicted_s=evicted.get(o)) for o, seen in lives.items()}


async def past(
    conn: AsyncConnection, offerings: Collection[Offering], nodes: int, now: datetime
) -> Past:
    """What all jobs' requests for Spot were answered there, as far as it counts for so many.

    With it what Azure told last of evictions there.
    """
    spots = {o for o in offerings if o.capacity_type is CapacityType.SPOT}
    if not spots:
        return NO_PAST
    found = await answered(conn, spots, nodes, now)
    returned = await _returned(conn, now)
    told = await market.bands(conn, map(place_of, spots))
    bands = {o: told[place_of(o)].band.per_hour for o in spots if place_of(o) in told}
    return replace(found, returned=returned, bands=bands)


async def answered(
    conn: AsyncConnection, spots: Collection[Offering], nodes: int, now: datetime
) -> Past:
    """The same of requests for these Spot offerings alone: droughts and signs, in one query."""
    answers = [_answer(row) for row in await conn.execute(_answers(spots, now))]
    return Past.of(answers, spots, nodes, now)


def _answers(spots: Iterable[Offering], now: datetime) -> Select[tuple[object, ...]]:
    keys = sorted((o.region, o.vm_size, str(o.capacity_type)) for o in spots)
    there = tuple_(_c.region, _c.vm_size, _c.capacity_type).in_(keys)
    columns = (_c.region, _c.vm_size, _c.capacity_type, _c.job_id, _c.instance_count)
    told = (*columns, _c.created_at, _c.outcome, _c.since)
    kinds = (_c.ran_at.is_not(None), _c.outcome == Outcome.NO_CAPACITY)  # an index for each
    newest = [
        select(*told)
        .where(there, kind, _c.created_at > now - SEEN)
        .order_by(_c.created_at.desc())
        .limit(_MOST)
        .subquery()
        for kind in kinds
    ]
    both = union_all(*(select(part) for part in newest)).subquery()
    return select(*both.c)


def _answer(row: Row[tuple[object, ...]]) -> Answer:
    capacity, granted = CapacityType(row.capacity_type), row.outcome != Outcome.NO_CAPACITY
    return Answer(
        offering=Offering(region=row.region, vm_size=row.vm_size, capacity_type=capacity),
        job_id=row.job_id,
        nodes=row.instance_count,
        at=row.created_at if granted else row.since,  # a refusal may come minutes later
        granted=granted,
        evicted_at=row.since if row.outcome == Outcome.EVICTED else None,
    )


async def _returned(conn: AsyncConnection, now: datetime) -> tuple[int, int]:
    """Moves of any job from on demand to Spot, and how many of them Spot accepted."""
    then = attempts.alias("then")
    left = (_c.capacity_type == CapacityType.ON_DEMAND, _c.outcome == Outcome.PAUSED)
    found = then.c.ran_at.is_not(None)
    query = (
        select(func.count(), func.count().filter(found))
        .select_from(attempts)
        .join(then, (then.c.job_id == _c.job_id) & (then.c.number == _c.number + 1))
        .where(*left, _c.reason == RETURNS, _c.created_at > now - SEEN)
        .where(then.c.capacity_type == CapacityType.SPOT)
        .where(found | (then.c.outcome == Outcome.NO_CAPACITY))
    )
    moved, accepted = (await conn.execute(query)).one()
    return moved, accepted
