"""What was metered, cut into days and grouped, as Cost Management adds it up."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from emulator.core.market_rows import MeteredUsage
from emulator.market.metering import HOUR, slices

DAY = 86_400.0


@dataclass(frozen=True)
class DailyUsage:
    """A part of one day of one instance's life, at one price."""

    record: MeteredUsage
    day: float  # its midnight, UTC
    hours: float
    price: float

    @property
    def cost(self) -> float:
        """US dollars."""
        return self.hours * self.price


def usages(records: Iterator[MeteredUsage], since: float, until: float) -> Iterator[DailyUsage]:
    """Everything that was used in a span of time."""
    for record in records:
        for begin, end, price in slices(record, until):
            at = max(begin, since)
            while at < end:
                day = at // DAY * DAY
                stop = min(end, day + DAY)
                yield DailyUsage(record, day, (stop - at) / HOUR, price)
                at = stop


DIMENSIONS: dict[str, Callable[[DailyUsage], str]] = {
    "ResourceId": lambda usage: usage.record.scale_set_id.lower(),
    "ResourceGroup": lambda usage: usage.record.group.lower(),
    "MeterCategory": lambda _: "Virtual Machines",
}
MEASURES: dict[str, Callable[[DailyUsage], float]] = {
    "PreTaxCost": lambda usage: usage.cost,
    "PreTaxCostUSD": lambda usage: usage.cost,
    "Cost": lambda usage: usage.cost,
    "CostUSD": lambda usage: usage.cost,
    "UsageQuantity": lambda usage: usage.hours,
}


def tag(usage: DailyUsage, name: str) -> str | None:
    """Return the value of a tag, ignoring the case of its name."""
    values = (v for k, v in usage.record.tags.items() if k.lower() == name.lower())
    return next(values, None)


def total(
    rows: Iterator[DailyUsage],
    keys: list[Callable[[DailyUsage], Any]],
    measures: list[Callable[[DailyUsage], float]],
) -> list[list[Any]]:
    """Sum the measures for every combination of the keys, sorted by the keys."""
    sums: dict[tuple[Any, ...], list[float]] = {}
    for usage in rows:
        key = tuple(of(usage) for of in keys)
        line = sums.setdefault(key, [0.0] * len(measures))
        for index, measure in enumerate(measures):
            line[index] += measure(usage)
    return [[*line, *key] for key, line in sorted(sums.items(), key=lambda row: str(row[0]))]


def as_date(day: float) -> int:
    """20261120: how days are written in answers."""
    return int(datetime.fromtimestamp(day, UTC).strftime("%Y%m%d"))
