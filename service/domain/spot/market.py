"""Describe Azure's Spot data beyond prices: eviction bands, price history, placement scores."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import NamedTuple


class EvictionBand(StrEnum):
    """Machines evicted per hour, in per cent of those running, over the last 28 days."""

    TO_5 = "0-5"
    TO_10 = "5-10"
    TO_15 = "10-15"
    TO_20 = "15-20"
    ABOVE = "20+"

    @property
    def per_hour(self) -> float:
        """Return evictions per node-hour: the middle of the band, a guess for `20+`."""
        return _MIDDLES[self]

    @property
    def as_phrase(self) -> str:
        """Return the band for a sentence, such as `5 to 10 %`."""
        return f"{self.value.replace('-', ' to ')} %"


_MIDDLES = {
    EvictionBand.TO_5: 0.025,
    EvictionBand.TO_10: 0.075,
    EvictionBand.TO_15: 0.125,
    EvictionBand.TO_20: 0.175,
    EvictionBand.ABOVE: 0.25,
}


class PricePoint(NamedTuple):
    """The price of a Spot machine-hour from this time on, in US dollars."""

    at: datetime
    hourly: Decimal


class PlacementScore(StrEnum):
    """Azure's estimate of the chance that a request for Spot machines succeeds now."""

    HIGH = "High"
    MEDIUM = "Medium"
    LOW = "Low"


@dataclass(frozen=True, kw_only=True)
class ReportedBand:
    """The eviction band of an offering as Azure last reported it."""

    band: EvictionBand
    seen_at: datetime


@dataclass(frozen=True, kw_only=True)
class EvictionPrior:
    """Evictions per node-hour that a plan assumes, and their source."""

    per_hour: float
    source: str  # for the plan


def eviction_prior(report: ReportedBand | None, default: float) -> EvictionPrior:
    """Return the last band that Azure reported, however old; else the setting."""
    if report is None:
        source = f"REKINDLE_HAZARD_PER_HOUR, {default:g}: Azure has reported no eviction rate"
        return EvictionPrior(per_hour=default, source=source)
    date_text = f"{report.seen_at:%Y-%m-%d}"
    source = f"Azure's eviction rate of {date_text}, {report.band.as_phrase} of machines an hour"
    return EvictionPrior(per_hour=report.band.per_hour, source=source)
