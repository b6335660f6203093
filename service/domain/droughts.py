"""How long droughts last, and so how long a job waits for Spot: now, and after evictions to come.

Pure.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import NormalDist

from service.domain.ages import DROUGHT_PRIOR, Ages, quantile
from service.domain.answers import Past
from service.domain.forecast import BELIEF, Course, Seen, ToCome, Z, gamma_at
from service.domain.shortage import LONGEST, LOOK_AGAIN, PROBE, Shortage
from service.domain.situation import UNSEEN_DROUGHT_S

_DOUBT = 1.5  # variance of the log of a drought's mean, over the droughts that it was told by
_NORMAL = NormalDist()
_WEIGHT = 3.0  # droughts that the prior counts for
_ALIKE = 0.6  # odds that one offering refuses when another one evicted
_HOP_WEIGHT = 4.0  # evictions that these count for
_HOUR = 3600.0
_KNOWN = LONGEST + LOOK_AGAIN + PROBE  # while somebody waits, so soon the next answer is there


@dataclass(frozen=True, kw_only=True)
class Aftermath:
    """What is to be expected of Spot once it has evicted."""

    share: float  # of evictions after which every offering refuses ...
    p50: float  # ... for so many seconds ...
    p90: float
    seen: float  # ... by what so many droughts told, those that the prior counts for included


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


def lasts(shortages: Iterable[Shortage], now: datetime) -> bool:
    """Whether jobs that wait still leave all of them alone, as `choice.choose` does.

    A row stays until somebody is given machines, so of an old one nothing is known today. Who
    waits looks again within a minute of its end.
    """
    return all(s.holds(now - LOOK_AGAIN) for s in shortages)


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


def with_waits(course: Course, calm: ToCome, seen: Seen, after: Aftermath) -> ToCome:
    """With the evictions to come and the waits for machines after them, which are not paid for.

    ``calm``: how long it would take without any.
    """
    return calm.after(_evictions_take(course, calm.p50, seen, after)) if calm.p50 > 0 else calm


def _evictions_take(course: Course, work: float, seen: Seen, after: Aftermath) -> ToCome:
    """Seconds of all evictions to come in so much work: recoveries, what is lost, and droughts.

    Their number is negative binomial (a Gamma rate), so none may come; else what they take is about
    log-normal, as droughts themselves are. The rate's uncertainty is lopsided, and the droughts'
    own is shared by all of them: neither is averaged out by many evictions.
    """
    counts, expected = BELIEF + seen.evictions, course.expected(work, seen)
    if expected <= 0:
        return ToCome(p10=0.0, p50=0.0, p90=0.0)
    each, apart, drought = _one_takes(course, after)
    some = -math.expm1(-counts * math.log1p(expected / counts))
    many, spread = _counted(expected, 1 + 1 / counts, some)
    by_chance, chance = _counted(expected, 1.0, -math.expm1(-expected))
    noise = math.log(1 + apart / by_chance + chance / by_chance**2)
    weight = math.sqrt(max(spread / many**2 - chance / by_chance**2, 0.0) * counts)
    middle = math.log(many * each) - noise / 2 + weight * math.log(gamma_at(counts, 0.0))

    def at(share: float) -> float:
        if share + some <= 1:
            return 0.0
        z = _NORMAL.inv_cdf(1 - (1 - share) / some)
        far = math.log(gamma_at(counts, math.copysign(Z, z)) / gamma_at(counts, 0.0)) / Z
        return math.exp(middle + z * math.sqrt(noise + drought + (weight * far) ** 2))

    return ToCome(p10=at(0.1), p50=at(0.5), p90=at(0.9))


def _one_takes(course: Course, after: Aftermath) -> tuple[float, float, float]:
    """Seconds that one eviction takes on average; its variance, and the mean's, over its square."""
    (lost, square), sigma = course.one_takes, math.log(after.p90 / after.p50) / Z
    waits = after.share * after.p50 * math.exp(sigma**2 / 2)
    squares = square + 2 * lost * waits + after.share * after.p50**2 * math.exp(2 * sigma**2)
    each = lost + waits
    return each, squares / each**2 - 1, _DOUBT / after.seen * (waits / each) ** 2


def _counted(expected: float, square: float, any_comes: float) -> tuple[float, float]:
    """Mean and variance of a number of evictions if there are any.

    ``square``: what E[n (n - 1)] is over the square of the mean; 1: Poisson.
    """
    mean = expected / any_comes
    return mean, (expected + square * expected**2) / any_comes - mean**2
