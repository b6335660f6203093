"""Reconstruct Spot capacity over time from our own attempts, in the public trace format. Pure.

The format has one count of machines per tick. Capacity is observed only while machines are held
or requested there. A tick without observation repeats the last one before it, or the first one
after it; ``seen`` lists the ticks with an observation.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, Self

from service.domain.cloud.fleet import Offering

GAP = timedelta(minutes=5)
MAX_TICKS = 30_000  # of one trace
GAPS = (timedelta(seconds=1), timedelta(hours=1))
MAX_DURATION = timedelta(weeks=26)
_DEAREST = 1_000_000  # US dollars for a machine and hour
SOURCE = "rekindle"


class SpotPool(NamedTuple):
    """Spot machines of one VM size in one region: what a trace describes."""

    region: str
    vm_size: str

    def __str__(self) -> str:
        return f"{self.vm_size}@{self.region}"


def spot_pool_of(offering: Offering) -> SpotPool:
    """Return the pool of an offering, whatever its capacity type."""
    return SpotPool(offering.region, offering.vm_size)


class HeldMachine(NamedTuple):
    """One machine while it costs money, at one price."""

    begins: datetime
    ends: datetime
    hourly: Decimal


class CapacitySample(NamedTuple):
    """This many machines were available at ``at``, while none was held."""

    at: datetime
    machines: int


class PriceChange(NamedTuple):
    """The price of a machine-hour from this tick on, in US dollars."""

    tick: int
    hourly: Decimal


class InvalidTrace(ValueError):
    """The trace cannot be replayed; the message says what to do about it."""


@dataclass(frozen=True, kw_only=True)
class TraceWindow:
    """The ticks that all traces of one export share."""

    begins: datetime
    ticks: int
    gap: timedelta = GAP

    def tick_of(self, at: datetime) -> int:
        """Return the first tick that is not before ``at``; it may lie outside the window."""
        return math.ceil((at - self.begins) / self.gap)


@dataclass(frozen=True, kw_only=True)
class CapacityTrace:
    """Available machines at each tick."""

    pool: SpotPool
    begins: datetime
    gap: timedelta
    counts: tuple[int, ...]
    observed: tuple[tuple[int, int], ...]  # ticks, without the last of each
    prices: tuple[PriceChange, ...] = ()  # oldest first

    @property
    def observed_share(self) -> float:
        """Return the share of ticks with an observation, 0 to 1."""
        return sum(end - begin for begin, end in self.observed) / len(self.counts)

    def as_dict(self) -> dict[str, Any]:
        """Return the trace as a JSON-able document; other programs read `data`."""
        metadata = {
            "gap_seconds": self.gap.total_seconds(),
            "start_time": self.begins.isoformat(),
            "instance": self.pool.vm_size,
            "region": self.pool.region,
            "source": SOURCE,
            "seen": [list(stretch) for stretch in self.observed],
            "prices": [[p.tick, str(p.hourly)] for p in self.prices],
        }
        return {"metadata": metadata, "data": list(self.counts)}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], begins: datetime | None = None) -> Self:
        """Parse the trace of a file.

        ``begins`` is the start time where the file has none. Without `seen`, all ticks count as
        observed. Raises InvalidTrace.
        """
        try:
            metadata, counts = document["metadata"], _parse_counts(document["data"])
            gap = timedelta(seconds=float(metadata["gap_seconds"]))
            pool = SpotPool(str(metadata.get("region", "")), str(metadata.get("instance", "")))
            since = (
                begins if metadata.get("start_time") is None else _moment(metadata["start_time"])
            )
            _bounded(since, gap, len(counts))
            observed = _apart(metadata.get("seen", [[0, len(counts)]]), len(counts))
            prices = _rising(metadata.get("prices", []), len(counts))
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise InvalidTrace(
                'A trace is {"metadata": {"gap_seconds": 300, "region": "eastus", "instance": '
                '"Standard_...", "start_time": "2026-11-01T00:00:00+00:00"}, "data": [0, 4, ...]} '
                f"({type(error).__name__}: {error!s:.200})."
            ) from error
        if since is None:
            raise InvalidTrace(
                "A trace needs metadata.start_time, such as 2026-11-01T00:00:00+00:00."
            )
        return cls(
            pool=pool, begins=since, gap=gap, counts=counts, observed=observed, prices=prices
        )


def build_trace(
    pool: SpotPool,
    window: TraceWindow,
    machines: Sequence[HeldMachine],
    samples: Iterable[CapacitySample],
) -> CapacityTrace | None:
    """Build the trace of one pool from held machines and samples; None without observations.

    ``samples``: refusals and evictions (no machine available), and holds that we gave up (what was
    held was available).
    """
    held_counts = _machines_by_tick(window, machines)
    in_time = sorted(samples, key=lambda s: s.at)  # of one tick the last counts
    tick_counts = [(min(window.tick_of(s.at), window.ticks), s.machines) for s in in_time]
    observed = [count > 0 for count in held_counts]
    for tick, _ in tick_counts:
        if 0 <= tick < window.ticks:
            observed[tick] = True
    if not any(observed):
        return None
    return CapacityTrace(
        pool=pool,
        begins=window.begins,
        gap=window.gap,
        counts=tuple(_counts(held_counts, tick_counts, observed)),
        observed=tuple(_stretches(observed)),
        prices=tuple(_prices(window, machines)),
    )


def _machines_by_tick(window: TraceWindow, machines: Sequence[HeldMachine]) -> list[int]:
    """Return the number of machines held at each tick."""
    changes = [0] * (window.ticks + 1)
    for machine in machines:
        ticks = (window.tick_of(machine.begins), window.tick_of(machine.ends))
        begin, end = (min(max(tick, 0), window.ticks) for tick in ticks)
        changes[begin] += 1
        changes[end] -= 1
    counts, many = [], 0
    for change in changes[:-1]:
        many += change
        counts.append(many)
    return counts


def _counts(
    held_counts: list[int], tick_counts: list[tuple[int, int]], observed: list[bool]
) -> Iterator[int]:
    """Yield the machines held at each tick, or else the last observation."""
    by_tick, at = dict(tick_counts), 0
    before = [count for tick, count in tick_counts if tick < 0]
    first = observed.index(True)
    last = before[-1] if before else held_counts[first] or by_tick.get(first, 0)
    for at, held in enumerate(held_counts):
        if at in by_tick:
            last = by_tick[at]
        elif held:
            last = held
        yield held or last


def _stretches(observed: list[bool]) -> Iterator[tuple[int, int]]:
    at = 0
    for is_seen, group in groupby(observed):
        many = len(list(group))
        if is_seen:
            yield at, at + many
        at += many


def _prices(window: TraceWindow, machines: Sequence[HeldMachine]) -> Iterator[PriceChange]:
    """Yield each change of the billed price; an earlier one counts at the first tick."""
    last: Decimal | None = None
    for machine in sorted(machines, key=lambda h: h.begins):
        tick = max(window.tick_of(machine.begins), 0)
        if machine.hourly != last and tick < window.ticks:
            yield PriceChange(tick, machine.hourly)
            last = machine.hourly


def _parse_counts(values: Sequence[Any]) -> tuple[int, ...]:
    """Parse counts of machines; check their number before converting any."""
    if not 0 < len(values) <= MAX_TICKS:
        raise ValueError(f"it has 1 to {MAX_TICKS} counts")
    counts = [float(n) for n in values]
    if not all(0 <= n < math.inf for n in counts):
        raise ValueError("counts of machines are 0 or more")
    return tuple(int(n) for n in counts)


def _moment(value: object) -> datetime:
    moment = datetime.fromisoformat(str(value))
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)


def _bounded(since: datetime | None, gap: timedelta, counts: int) -> None:
    """Check gap and duration; raise OverflowError if the last tick is beyond year 9999."""
    if not GAPS[0] <= gap <= GAPS[1]:
        raise ValueError("gap_seconds is 1 to 3600")
    if counts * gap > MAX_DURATION:
        raise ValueError(f"it lasts {MAX_DURATION.days // 7} weeks at most: bring the last ones")
    if since is not None:
        _ = since + counts * gap + timedelta(days=1)


def _apart(pairs: Iterable[Any], counts: int) -> tuple[tuple[int, int], ...]:
    """Parse stretches of ticks that do not overlap."""
    stretches = sorted((int(a), int(b)) for a, b in pairs)
    ends = [0, *(end for _, end in stretches)]
    if not all(last <= a < b <= counts for last, (a, b) in zip(ends, stretches, strict=False)):
        raise ValueError("seen has pairs [first, end] of counts that do not overlap")
    return tuple(stretches)


def _rising(rows: Iterable[Any], counts: int) -> tuple[PriceChange, ...]:
    """Parse price changes, oldest first, one per tick."""
    prices = dict(sorted((_priced(*row) for row in rows), key=itemgetter(0)))
    if not all(0 <= tick < counts for tick in prices):
        raise ValueError("a price is of one of the counts, which begin at 0")
    return tuple(PriceChange(*price) for price in prices.items())


def _priced(tick: object, hourly: object) -> PriceChange:
    try:
        price = Decimal(str(hourly))
    except InvalidOperation:
        raise ValueError(f"{hourly!r:.40} is no price") from None
    if not (price.is_finite() and 0 <= price <= _DEAREST):
        raise ValueError(f"{hourly!r:.40} is no price of an hour in US dollars")
    return PriceChange(int(str(tick)), price)
