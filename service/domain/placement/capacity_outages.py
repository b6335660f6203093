"""How long droughts last, and so how long a job waits for Spot: now, and after evictions to come.

Pure.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from service.domain.placement.capacity_history import Past
from service.domain.placement.policy_state import UNSEEN_DROUGHT_S
from service.domain.planning.forecast import Aftermath, ToCome
from service.domain.spot.age_hazard import DROUGHT_PRIOR, Ages, quantile
from service.domain.spot.capacity_backoff import LONGEST, LOOK_AGAIN, PROBE, Shortage

_WEIGHT = 3.0  # droughts that the prior counts for
_ALIKE = 0.6  # odds that one offering refuses when another one evicted
_HOP_WEIGHT = 4.0  # evictions that these count for
_HOUR = 3600.0
_KNOWN = LONGEST + LOOK_AGAIN + PROBE  # while somebody waits, so soon the next answer is there


def rates(seen: Ages, spots: int) -> tuple[float, ...]:
    """Ends per hour by age, where so many Spot offerings all refuse: own experience and prior."""
    prior = tuple(rate * spots**0.5 for rate in DROUGHT_PRIOR)
    return seen.rates(prior, _WEIGHT)


def made_good(hops: tuple[int, int], spots: int) -> float:
    """The odds that one of so many Spot offerings accepts at once after an eviction.

    ``hops``: evictions, and how many of them one has made good.
    """
    evictions, found = hops
    return (_HOP_WEIGHT * (1 - _ALIKE ** (spots - 1)) + found) / (_HOP_WEIGHT + evictions)


def after_evictions(past: Past, spots: int) -> Aftermath:
    """What a job with so many Spot offerings has to expect after each eviction to come."""
    of = rates(past.droughts, spots)
    p50, p90 = (quantile(of, 0.0, share) * _HOUR for share in (0.5, 0.9))
    share = 1 - made_good(past.given_again, spots)
    return Aftermath(share=share, p50=p50, p90=p90, seen=_WEIGHT + sum(past.droughts.ends))


def lasts(shortages: Iterable[Shortage], nodes: int, now: datetime) -> bool:
    """Whether all offerings are still in backoff for ``nodes``, as `offering_choice` sees it.

    A row stays until somebody is given machines, so of an old one nothing is known today. Who
    waits looks again within a minute of its end.
    """
    return all(s.holds(now - LOOK_AGAIN, nodes) for s in shortages)


def wait(shortages: Sequence[Shortage], past: Past, now: datetime) -> ToCome | None:
    """Seconds until one of a job's Spot offerings, which all refuse, accepts.

    None where the last refusal is too old for a drought that somebody waits in: then the first
    request since is under way, and nobody knows what it will be told.
    """
    if past.refused_at is None or now - past.refused_at > _KNOWN:
        return None
    unseen = 0.0 if past.drought_seen else UNSEEN_DROUGHT_S
    age = ((now - max(s.since for s in shortages)).total_seconds() + unseen) / _HOUR
    of = rates(past.droughts, len(shortages))
    p10, p50, p90 = (quantile(of, max(age, 0.0), share) * _HOUR for share in (0.1, 0.5, 0.9))
    return ToCome(p10=p10, p50=p50, p90=p90)
