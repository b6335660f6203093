"""How long machines were held where: what attempts of all jobs have lived through."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from sqlalchemy import case, func, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.tables import attempts
from service.domain.ages import Ages
from service.domain.choice import Lived
from service.domain.fleet import Offering
from service.domain.states import CapacityType, Outcome

_SEEN = timedelta(days=30)  # older lives say little of today
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
        .where(tuple_(*place).in_(keys), _c.ran_at.is_not(None), _c.created_at > now - _SEEN)
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
