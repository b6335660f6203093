"""Spot price and eviction band, as they follow from traces.

Azure does not publish how it sets prices. Here: the catalog's price when nothing is scarce, the
on-demand price when nothing is left, and in between by the square of the scarcity of the day
before, so that a price stands for a day and nothing in the future is needed.
"""

from decimal import Decimal
from itertools import pairwise

from emulator.capacity.traces import DAY, HOUR, MachinesOverTime, falls, machine_hours
from emulator.core.catalog import SizeOffer

HISTORY_DAYS = 90
BAND_DAYS = 28
BANDS = ((5.0, "0-5"), (10.0, "5-10"), (15.0, "10-15"), (20.0, "15-20"))
CENTS = Decimal("0.000001")  # as many digits as Azure's meters have


def price(offer: SizeOffer, traces: list[MachinesOverTime], now: float) -> Decimal:
    """US dollars per hour, from this day's midnight (UTC) to the next."""
    missing = Decimal(_scarcity(traces, now // DAY * DAY)) ** 2
    return (offer.spot + (offer.on_demand - offer.spot) * missing).quantize(CENTS)


def history(
    offer: SizeOffer, traces: list[MachinesOverTime], now: float
) -> list[tuple[float, Decimal]]:
    """Every price of the last days with the time it began, newest first."""
    today = now // DAY
    days = [(today - n) * DAY for n in range(HISTORY_DAYS)]
    prices = [(day, price(offer, traces, day)) for day in days]
    changed = [row for row, before in pairwise(prices) if row[1] != before[1]]
    return [*changed, prices[-1]]


def band(traces: list[MachinesOverTime], now: float) -> str:
    """Return the band of the average percentage of machines taken back per hour."""
    since = now - BAND_DAYS * DAY
    hours = sum(machine_hours(trace, since, now) for trace in traces)
    evicted = sum(falls(trace, since, now) for trace in traces)
    if not hours:
        return "20+" if traces else "0-5"
    rate = 100 * evicted / hours
    return next((name for end, name in BANDS if rate < end), "20+")


def _scarcity(traces: list[MachinesOverTime], day: float) -> float:
    """Which share of the most there ever is was missing on the day before; 0 is none."""
    most = sum(trace.plenty for trace in traces) * DAY / HOUR
    if not most:
        return 1.0 if traces else 0.0
    available = sum(machine_hours(trace, day - DAY, day) for trace in traces)
    return min(max(1 - available / most, 0.0), 1.0)
