"""Estimate how long a job waits for Spot: in the present outage and after later evictions.

Pure.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from service.domain.placement.capacity_history import CapacityHistory
from service.domain.placement.policy_state import UNSEEN_OUTAGE_S
from service.domain.planning.forecast import EvictionWait, RemainingTime
from service.domain.spot.age_hazard import OUTAGE_PRIOR, Exposure, residual_life_quantile
from service.domain.spot.capacity_backoff import (
    LONGEST_BACKOFF,
    PROBE_TIMEOUT,
    RECHECK_INTERVAL,
    Shortage,
)

_WEIGHT = 3.0  # outages that the prior counts for
_ALIKE = 0.6  # odds that one offering refuses when another one evicted
_HOP_WEIGHT = 4.0  # evictions that these count for
_HOUR = 3600.0
# While a job waits, the next answer comes within this time.
_KNOWN = LONGEST_BACKOFF + RECHECK_INTERVAL + PROBE_TIMEOUT


def outage_end_rates(exposure: Exposure, spots: int) -> tuple[float, ...]:
    """Return ends of an outage per hour by age, for this many Spot offerings."""
    prior = tuple(rate * spots**0.5 for rate in OUTAGE_PRIOR)
    return exposure.rates(prior, _WEIGHT)


def failover_probability(hops: tuple[int, int], spots: int) -> float:
    """Return the probability that another Spot offering accepts right after an eviction.

    ``hops``: evictions, and how many of them another offering replaced at once.
    """
    evictions, failovers = hops
    return (_HOP_WEIGHT * (1 - _ALIKE ** (spots - 1)) + failovers) / (_HOP_WEIGHT + evictions)


def expected_aftermath(history: CapacityHistory, spots: int) -> EvictionWait:
    """Return the expected wait after each eviction of a job with ``spots`` offerings."""
    rates = outage_end_rates(history.outages, spots)
    p50, p90 = (residual_life_quantile(rates, 0.0, q) * _HOUR for q in (0.5, 0.9))
    share = 1 - failover_probability(history.regrants, spots)
    return EvictionWait(share=share, p50=p50, p90=p90, outages=_WEIGHT + sum(history.outages.ends))


def is_every_offering_in_backoff(shortages: Iterable[Shortage], nodes: int, now: datetime) -> bool:
    """Return whether a job of ``nodes`` machines still leaves all offerings alone.

    A row remains until a job gets machines, so an old one says nothing of today. Waiting jobs
    recheck within a minute of its end.
    """
    return all(s.covers(now - RECHECK_INTERVAL, nodes) for s in shortages)


def expected_wait(
    shortages: Sequence[Shortage], history: CapacityHistory, now: datetime
) -> RemainingTime | None:
    """Return seconds until one of a job's Spot offerings accepts, while all refuse.

    None where the last refusal is too old for an outage that a job still waits in: then the first
    request since is under way and its answer is unknown.
    """
    if history.refused_at is None or now - history.refused_at > _KNOWN:
        return None
    unseen = 0.0 if history.is_outage_start_observed else UNSEEN_OUTAGE_S
    age = ((now - max(s.since for s in shortages)).total_seconds() + unseen) / _HOUR
    of = outage_end_rates(history.outages, len(shortages))
    p10, p50, p90 = (
        residual_life_quantile(of, max(age, 0.0), share) * _HOUR for share in (0.1, 0.5, 0.9)
    )
    return RemainingTime(p10=p10, p50=p50, p90=p90)
