"""What Azure tells of Spot beyond its prices: eviction bands, price history, placement scores."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import NamedTuple


class Band(StrEnum):
    """Machines evicted in an hour, per cent of those that ran, over the last 28 days."""

    TO_5 = "0-5"
    TO_10 = "5-10"
    TO_15 = "10-15"
    TO_20 = "15-20"
    ABOVE = "20+"

    @property
    def per_hour(self) -> float:
        """Evictions of one node per hour: the band's middle; of the open one a guess."""
        return _MIDDLES[self]

    @property
    def words(self) -> str:
        """For a sentence."""
        return f"{self.value.replace('-', ' to ')} %"


_MIDDLES = {
    Band.TO_5: 0.025,
    Band.TO_10: 0.075,
    Band.TO_15: 0.125,
    Band.TO_20: 0.175,
    Band.ABOVE: 0.25,
}


class PricePoint(NamedTuple):
    """From this time on a Spot machine cost this much for an hour, in US dollars."""

    at: datetime
    hourly: Decimal


class Score(StrEnum):
    """How likely Azure thinks that so many Spot machines would be given now."""

    HIGH = "High"
    MEDIUM = "Medium"
    LOW = "Low"


@dataclass(frozen=True, kw_only=True)
class Told:
    """What Azure said of a place, and when it last said so."""

    band: Band
    seen_at: datetime


@dataclass(frozen=True, kw_only=True)
class Prior:
    """What a plan takes for the evictions of one node per hour, and from where."""

    per_hour: float
    source: str  # for the plan


def prior(told: Told | None, default: float) -> Prior:
    """By the last band that Azure told, however old; else by the deployment's setting."""
    if told is None:
        source = f"REKINDLE_HAZARD_PER_HOUR, {default:g}: Azure has told no eviction rate"
        return Prior(per_hour=default, source=source)
    when = f"{told.seen_at:%Y-%m-%d}"
    source = f"Azure's eviction rate of {when}, {told.band.words} of machines an hour"
    return Prior(per_hour=told.band.per_hour, source=source)
