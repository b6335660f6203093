"""How likely an eviction is: Azure's band as a prior, our own hours as data. Pure.

Gamma-Poisson: a band of q per hour is a Gamma prior of a few pseudo-evictions; evictions over
hours held move it. Lifetimes are heavy-tailed, so the rate is kept by the age of the hold
(`age_hazard`).
Evictions come in clusters: 92 % of those of one size and zone fall within three minutes of another
(arXiv 2604.16457), so each raises the hazard of its neighbours for minutes.
"""

import math
from functools import lru_cache

from service.domain.spot.age_hazard import HOLD_PRIOR, Ages, expected_rest

BURST_S = 600.0  # an eviction raises the hazard of the same size and zone for so long
BURST = 6.0  # so many times, falling back to once
BAND_WEIGHT = 2.0  # evictions that a band counts for
_POOLED_WEIGHT = 3.0  # evictions that all offers together count for, in the rate of one
RAREST, OFTENEST = 1e-3, 20.0  # evictions per hour that are taken for possible
_ENDLESS = 1e6  # hours


def hold_rates(
    own: Ages, pooled: Ages, band_per_hour: float | None, burst_s: float | None = None
) -> tuple[float, ...]:
    """Evictions per hour of one hold by its age: the band, what all offers saw, what this one saw.

    ``burst_s`` is the time since anybody of ours was evicted from the same size and zone.
    """
    rates = own.rates(pooled.rates(prior_rates(band_per_hour), BAND_WEIGHT), _POOLED_WEIGHT)
    raised = burst(burst_s)
    return tuple(rate * raised for rate in rates)


@lru_cache(maxsize=256)
def prior_rates(band_per_hour: float | None) -> tuple[float, ...]:
    """Rates by age whose mean life is that of the band; without a band, the usual ones."""
    if not band_per_hour:
        return HOLD_PRIOR
    wanted = 1 / min(max(band_per_hour, RAREST), OFTENEST)
    low, high = 1e-3, 1e3  # multiples of the usual rates; the mean life falls with them
    for _ in range(40):
        middle = math.sqrt(low * high)
        lasts = expected_rest(tuple(rate * middle for rate in HOLD_PRIOR), 0.0, _ENDLESS)
        low, high = (middle, high) if lasts > wanted else (low, middle)
    return tuple(rate * low for rate in HOLD_PRIOR)


def burst(since_s: float | None) -> float:
    """How many times the usual hazard is, so many seconds after an eviction next door.

    >>> burst(0.0), burst(300.0), burst(600.0), burst(None)
    (6.0, 3.5, 1.0, 1.0)
    """
    if since_s is None or since_s >= BURST_S:
        return 1.0
    return BURST - (BURST - 1) * since_s / BURST_S
