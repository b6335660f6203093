"""How many machines could be had where and when, as far as our own attempts saw it. Pure.

The file format of public availability traces: one count per tick. We see a place only while we
hold machines there or ask for some. A tick that nobody saw has what was seen last before it, one
before the first sight what was seen first; ``seen`` says which ticks are more than that.
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
TICKS_AT_MOST = 30_000  # of one trace
GAPS = (timedelta(seconds=1), timedelta(hours=1))
LASTS_AT_MOST = timedelta(weeks=26)
_DEAREST = 1_000_000  # US dollars for a machine and hour
SOURCE = "rekindle"


class Place(NamedTuple):
    """What a trace is of: Spot machines of one size in one region."""

    region: str
    vm_size: str

    def __str__(self) -> str:
        return f"{self.vm_size}@{self.region}"


def place_of(offering: Offering) -> Place:
    """Its place, however it is bought."""
    return Place(offering.region, offering.vm_size)


class Held(NamedTuple):
    """One machine from when it cost money until it did no more, at one price."""

    begins: datetime
    ends: datetime
    hourly: Decimal


class Sight(NamedTuple):
    """From ``at`` on, while nothing is held, so many machines could be had."""

    at: datetime
    machines: int


class Priced(NamedTuple):
    """From this tick on a machine cost this much for an hour, in US dollars."""

    tick: int
    hourly: Decimal


class BadTrace(ValueError):
    """It cannot be replayed; says what to do about it."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """Ticks that all traces of one export share."""

    begins: datetime
    ticks: int
    gap: timedelta = GAP

    def tick(self, at: datetime) -> int:
        """The first tick that does not lie before ``at``; may lie outside."""
        return math.ceil((at - self.begins) / self.gap)


@dataclass(frozen=True, kw_only=True)
class Trace:
    """Machines that could be had at each tick."""

    place: Place
    begins: datetime
    gap: timedelta
    counts: tuple[int, ...]
    seen: tuple[tuple[int, int], ...]  # ticks, without the last of each
    prices: tuple[Priced, ...] = ()  # oldest first

    @property
    def seen_share(self) -> float:
        """Of the ticks, those that we saw; 0 to 1."""
        return sum(end - begin for begin, end in self.seen) / len(self.counts)

    def as_dict(self) -> dict[str, Any]:
        """A trace file: what other programs read of it is ``gap_seconds`` and ``data``."""
        metadata = {
            "gap_seconds": self.gap.total_seconds(),
            "start_time": self.begins.isoformat(),
            "instance": self.place.vm_size,
            "region": self.place.region,
            "source": SOURCE,
            "seen": [list(stretch) for stretch in self.seen],
            "prices": [[p.tick, str(p.hourly)] for p in self.prices],
        }
        return {"metadata": metadata, "data": list(self.counts)}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], begins: datetime | None = None) -> Self:
        """The trace of a file; others' say neither place nor time, and were seen throughout.

        Raises BadTrace. ``begins`` is taken where the file does not say.
        """
        try:
            told, counts = document["metadata"], _whole(document["data"])
            gap = timedelta(seconds=float(told["gap_seconds"]))
            place = Place(str(told.get("region", "")), str(told.get("instance", "")))
            since = begins if told.get("start_time") is None else _moment(told["start_time"])
            _bounded(since, gap, len(counts))
            seen = _apart(told.get("seen", [[0, len(counts)]]), len(counts))
            prices = _rising(told.get("prices", []), len(counts))
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise BadTrace(
                'A trace is {"metadata": {"gap_seconds": 300, "region": "eastus", "instance": '
                '"Standard_...", "start_time": "2026-11-01T00:00:00+00:00"}, "data": [0, 4, ...]} '
                f"({type(error).__name__}: {error!s:.200})."
            ) from error
        if since is None:
            raise BadTrace("A trace needs metadata.start_time, such as 2026-11-01T00:00:00+00:00.")
        return cls(place=place, begins=since, gap=gap, counts=counts, seen=seen, prices=prices)


def trace(
    place: Place, window: Window, held: Sequence[Held], sights: Iterable[Sight]
) -> Trace | None:
    """What our attempts saw of a place; None when they saw nothing in this time.

    ``sights``: refusals and evictions (nothing could be had), and holds that we gave up
    (what was held could be had).
    """
    now_held = _held(window, held)
    in_time = sorted(sights, key=lambda s: s.at)  # of one tick the last counts
    told = [(min(window.tick(s.at), window.ticks), s.machines) for s in in_time]
    seen = [count > 0 for count in now_held]
    for tick, _ in told:
        if 0 <= tick < window.ticks:
            seen[tick] = True
    if not any(seen):
        return None
    return Trace(
        place=place,
        begins=window.begins,
        gap=window.gap,
        counts=tuple(_counts(now_held, told, seen)),
        seen=tuple(_stretches(seen)),
        prices=tuple(_prices(window, held)),
    )


def _held(window: Window, held: Sequence[Held]) -> list[int]:
    """Machines that we had at each tick."""
    changes = [0] * (window.ticks + 1)
    for one in held:
        begin, end = (min(max(window.tick(at), 0), window.ticks) for at in (one.begins, one.ends))
        changes[begin] += 1
        changes[end] -= 1
    counts, many = [], 0
    for change in changes[:-1]:
        many += change
        counts.append(many)
    return counts


def _counts(held: list[int], told: list[tuple[int, int]], seen: list[bool]) -> Iterator[int]:
    """What is held; where nothing is, what was seen last."""
    sights, at = dict(told), 0
    before = [count for tick, count in told if tick < 0]
    first = seen.index(True)
    last = before[-1] if before else held[first] or sights.get(first, 0)
    for at, have in enumerate(held):
        if at in sights:
            last = sights[at]
        elif have:
            last = have
        yield have or last


def _stretches(seen: list[bool]) -> Iterator[tuple[int, int]]:
    at = 0
    for is_seen, group in groupby(seen):
        many = len(list(group))
        if is_seen:
            yield at, at + many
        at += many


def _prices(window: Window, held: Sequence[Held]) -> Iterator[Priced]:
    """Each change that was billed; what began before the window stands at its first tick."""
    last: Decimal | None = None
    for one in sorted(held, key=lambda h: h.begins):
        tick = max(window.tick(one.begins), 0)
        if one.hourly != last and tick < window.ticks:
            yield Priced(tick, one.hourly)
            last = one.hourly


def _whole(told: Sequence[Any]) -> tuple[int, ...]:
    """Counts of machines as a file has them; bounded before anything is made of them."""
    if not 0 < len(told) <= TICKS_AT_MOST:
        raise ValueError(f"it has 1 to {TICKS_AT_MOST} counts")
    counts = [float(n) for n in told]
    if not all(0 <= n < math.inf for n in counts):
        raise ValueError("counts of machines are 0 or more")
    return tuple(int(n) for n in counts)


def _moment(told: object) -> datetime:
    found = datetime.fromisoformat(str(told))
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)


def _bounded(since: datetime | None, gap: timedelta, counts: int) -> None:
    """Whoever replays it walks through all of its time: OverflowError if that leaves the years."""
    if not GAPS[0] <= gap <= GAPS[1]:
        raise ValueError("gap_seconds is 1 to 3600")
    if counts * gap > LASTS_AT_MOST:
        raise ValueError(f"it lasts {LASTS_AT_MOST.days // 7} weeks at most: bring the last ones")
    if since is not None:
        _ = since + counts * gap + timedelta(days=1)


def _apart(told: Iterable[Any], counts: int) -> tuple[tuple[int, int], ...]:
    """Stretches of ticks, none in another."""
    seen = sorted((int(a), int(b)) for a, b in told)
    ends = [0, *(end for _, end in seen)]
    if not all(last <= a < b <= counts for last, (a, b) in zip(ends, seen, strict=False)):
        raise ValueError("seen has pairs [first, end] of counts that do not overlap")
    return tuple(seen)


def _rising(told: Iterable[Any], counts: int) -> tuple[Priced, ...]:
    """Oldest first, one for a tick."""
    prices = dict(sorted((_priced(*row) for row in told), key=itemgetter(0)))
    if not all(0 <= tick < counts for tick in prices):
        raise ValueError("a price is of one of the counts, which begin at 0")
    return tuple(Priced(*price) for price in prices.items())


def _priced(tick: object, hourly: object) -> Priced:
    try:
        price = Decimal(str(hourly))
    except InvalidOperation:
        raise ValueError(f"{hourly!r:.40} is no price") from None
    if not (price.is_finite() and 0 <= price <= _DEAREST):
        raise ValueError(f"{hourly!r:.40} is no price of an hour in US dollars")
    return Priced(int(str(tick)), price)
