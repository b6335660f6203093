"""Estimate the eviction rate: Azure's band as the prior, our own hours as data. Pure.

Gamma-Poisson: a band of q per hour is a Gamma prior of a few pseudo-evictions; evictions over
hours held move it. Lifetimes are heavy-tailed, so the rate is kept by the age of the hold
(`age_hazard`). Evictions come in clusters: 92 % of those of one size and zone fall within three
minutes of another (arXiv 2604.16457), so each raises the hazard of its neighbours for minutes.
"""

import math
from functools import lru_cache

from service.domain.spot.age_hazard import HOLD_PRIOR, Exposure, mean_residual_life

BURST_SECONDS = 600.0  # an eviction raises the hazard of the same size and zone for so long
BURST_FACTOR = 6.0  # the factor at the eviction; falls linearly to 1
BAND_WEIGHT = 2.0  # evictions that a band counts for
_POOLED_WEIGHT = 3.0  # evictions that all offers together count for, in the rate of one
RAREST, OFTENEST = 1e-3, 20.0  # evictions per hour that are taken for possible
_ENDLESS = 1e6  # hours


def hold_rates(
    own: Exposure, pooled: Exposure, band_per_hour: float | None, burst_s: float | None = None
) -> tuple[float, ...]:
    """Return evictions per hour of one hold by age, from the band and from observed exposure.

    ``own``: exposure of this offering; ``pooled``: of all; ``burst_s``: seconds since the last
    eviction of ours in the same size and zone.
    """
    rates = own.rates(pooled.rates(prior_rates(band_per_hour), BAND_WEIGHT), _POOLED_WEIGHT)
    raised = burst_factor(burst_s)
    return tuple(rate * raised for rate in rates)


@lru_cache(maxsize=256)
def prior_rates(band_per_hour: float | None) -> tuple[float, ...]:
    """Return rates by age whose mean life is that of the band; HOLD_PRIOR without a band."""
    if not band_per_hour:
        return HOLD_PRIOR
    target = 1 / min(max(band_per_hour, RAREST), OFTENEST)
    low, high = 1e-3, 1e3  # multiples of the usual rates; the mean life falls with them
    for _ in range(40):
        middle = math.sqrt(low * high)
        lifetime = mean_residual_life(tuple(rate * middle for rate in HOLD_PRIOR), 0.0, _ENDLESS)
        low, high = (middle, high) if lifetime > target else (low, middle)
    return tuple(rate * low for rate in HOLD_PRIOR)


def burst_factor(since_s: float | None) -> float:
    """Return the factor on the hazard, this many seconds after an eviction in the same zone.

    >>> [burst_factor(s) for s in (0.0, 300.0, 600.0, None)]
    [6.0, 3.5, 1.0, 1.0]
    """
    if since_s is None or since_s >= BURST_SECONDS:
        return 1.0
    return BURST_FACTOR - (BURST_FACTOR - 1) * since_s / BURST_SECONDS
