"""What a job would have cost, had it begun at each hour of the last weeks. Pure.

The production policy lives the job in recorded capacity, once from every hour on. A record of our
own is of what we happened to ask for, so the answer says how much of it was really seen.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from service.domain.fleet import Offering
from service.domain.option import Option
from service.domain.simulation import Case, Experience, live
from service.domain.situation import Candidate
from service.domain.traces import Place, Trace
from service.domain.trial import case_of, zones_of

HOUR = timedelta(hours=1)
LIVES_AT_MOST = 336  # two weeks of hours; of a longer record every second hour of the day, or third
_COST_AT_MOST = 1_000_000  # of all lives, at worst half a minute; long ones are fewer
_STEPS = (1, 2, 3, 4, 6, 8, 12, 24)  # hours
_TICKS = 60  # of work: a calendar has many lives and no need of the last per cent
_PATIENCE = timedelta(days=2)  # so long beyond its work a job without a deadline is followed
_LEAST_DAYS = 7
_LEAST_SEEN = 0.25  # of the record, for the hours to tell anything


class Slot(NamedTuple):
    """An hour of the week, UTC; 0 is Monday."""

    weekday: int
    hour: int


@dataclass(frozen=True, kw_only=True)
class Begun:
    """One life, by the hour at which it began."""

    at: datetime
    dollars: float
    hours: float | None  # None: it was not done while it was followed
    in_time: bool | None  # None: there is no deadline


@dataclass(frozen=True, kw_only=True)
class Cell:
    """The lives that began at the same hours; medians."""

    begins: int
    dollars: float | None  # None: none of them was done
    hours: float | None
    in_time_pct: float | None
    unfinished_pct: float

    @classmethod
    def of(cls, lives: Sequence[Begun]) -> "Cell":
        """Of at least one life. What came to no end has no cost that could be compared."""
        done = [life for life in lives if life.hours is not None]
        late = [life.in_time for life in lives if life.in_time is not None]
        return cls(
            begins=len(lives),
            dollars=statistics.median(life.dollars for life in done) if done else None,
            hours=statistics.median(life.hours or 0.0 for life in done) if done else None,
            in_time_pct=100 * statistics.fmean(late) if late else None,
            unfinished_pct=100 * (1 - len(done) / len(lives)),
        )


@dataclass(frozen=True, kw_only=True)
class CapacityCalendar:
    """Costs by hour of the week, and how far they can be relied on."""

    begins: datetime
    ends: datetime
    places: tuple[str, ...]  # whose capacity was lived in
    seen_share: float  # of their record
    lives: int
    cells: Mapping[Slot, Cell]
    hours: Mapping[int, Cell]  # of the day, all weekdays together
    whole: Cell | None  # all lives; None: there are none
    doubt: str  # why this is too little to go by; "": it is enough


class _Record(NamedTuple):
    """Capacity of every zone on one grid of ticks."""

    begins: datetime
    tick: timedelta
    weather: tuple[tuple[bool, ...], ...]

    @property
    def ticks(self) -> int:
        return len(self.weather[0])

    @property
    def ends(self) -> datetime:
        return self.begins + self.ticks * self.tick


def elsewhere(first: Option, traces: Mapping[str, Trace]) -> tuple[list[Option], list[Trace]]:
    """Others' traces, as if each were of machines like the plan's, at its price, in a region so
    named."""
    named = [replace(first, offering=replace(first.offering, region=name)) for name in traces]
    where = [Place(name, first.offering.vm_size) for name in traces]
    bare = [replace(t, prices=()) for t in traces.values()]  # theirs are of other machines
    moved = [replace(t, place=p) for t, p in zip(bare, where, strict=True)]
    return named, moved


def calendar(
    options: Sequence[Option], traces: Sequence[Trace], deadline_s: float | None
) -> CapacityCalendar | None:
    """By the options of a plan; None where no trace is of a place that they name."""
    spot = zones_of(options, {})
    matched = [(zone, trace) for zone in spot if (trace := _of(zone.offering, traces))]
    if not matched:
        return None
    zones, used = zip(*matched, strict=True)
    case = case_of(options[0], zones, deadline_s, _ticks(options[0], used))
    record = _record(used, case)
    lives = tuple(_lives(case, record, used)) if record else ()
    return _calendar(lives, used, record)


def _ticks(first: Option, traces: Sequence[Trace]) -> int:
    """None longer than an hour, which is what a calendar tells apart, or finer than the record."""
    work_s = first.total_steps * first.seconds_per_step
    finest = max(trace.gap for trace in traces).total_seconds()
    return max(1, min(max(_TICKS, math.ceil(work_s / HOUR.total_seconds())), int(work_s / finest)))


def _of(offering: Offering, traces: Iterable[Trace]) -> Trace | None:
    place = (offering.region, offering.vm_size)
    return next((t for t in traces if t.place == place), None)


def _record(traces: Sequence[Trace], case: Case) -> _Record | None:
    """The time that all of them cover; None if there is none."""
    begins = max(t.begins for t in traces)
    ends = min(t.begins + len(t.counts) * t.gap for t in traces)
    tick = timedelta(seconds=case.tick_s)
    ticks = int((ends - begins) / tick)
    if ticks < 1:
        return None
    nodes = case.zones[0].nodes
    weather = tuple(tuple(_up(t, begins, tick, ticks, nodes)) for t in traces)
    return _Record(begins, tick, weather)


def _up(trace: Trace, begins: datetime, tick: timedelta, ticks: int, nodes: int) -> Iterator[bool]:
    """By tick, whether all nodes could be had throughout."""
    enough = [count >= nodes for count in trace.counts]
    offset = begins - trace.begins
    for at in range(ticks):
        first = int((offset + at * tick) / trace.gap)
        last = math.ceil((offset + (at + 1) * tick) / trace.gap)
        yield all(enough[first : max(last, first + 1)])


def _lives(case: Case, record: _Record, traces: Sequence[Trace]) -> Iterator[Begun]:
    """From every hour that enough of the record comes after."""
    needs = (case.deadline or case.work + math.ceil(_PATIENCE / record.tick)) + case.cold + 1
    some = [any(zones) for zones in zip(*record.weather, strict=True)]
    most = max(1, min(LIVES_AT_MOST, _COST_AT_MOST // _cost(needs, len(record.weather))))
    for at in _beginnings(record, needs, most):
        tick = round((at - record.begins) / record.tick)
        weather = [zone[tick : tick + needs] for zone in record.weather]
        # Without a deadline a job waits for the first machines, at no cost.
        waits = 0 if case.deadline else next((i for i in range(needs) if some[tick + i]), needs)
        here = replace(case, zones=_priced(case.zones, traces, at))
        life = live(here, weather, waits, Experience.none(len(here.zones)))
        done = None if life.finished is None else life.finished + waits
        yield Begun(
            at=at,
            dollars=life.dollars,
            hours=None if done is None else done * case.tick_s / HOUR.total_seconds(),
            in_time=None if case.deadline is None else done is not None and done <= case.deadline,
        )


def _cost(ticks: int, zones: int) -> int:
    """Of one life at worst: as if every zone were looked at in each tick, and the rest as four."""
    return ticks * (zones + 4)


def _beginnings(record: _Record, needs: int, most: int) -> Iterator[datetime]:
    """Full hours that ``needs`` ticks of the record come after; of too many, the same ones of
    every day.

    Other hours on other days would tell weeks apart, and not hours.
    """
    last = record.begins + (record.ticks - needs) * record.tick
    first = record.begins.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    if first < record.begins:
        first += HOUR
    hours = [first + n * HOUR for n in range(math.floor((last - first) / HOUR) + 1)]
    every = next((n for n in _STEPS if len(hours) <= n * most), _STEPS[-1])
    yield from [at for at in hours if at.hour % every == 0][-most:]


def _priced(
    zones: Sequence[Candidate], traces: Sequence[Trace], at: datetime
) -> tuple[Candidate, ...]:
    """At the prices of that hour, as far as they were recorded; else at the plan's."""
    return tuple(
        replace(zone, hourly=_hourly(zone, trace, at))
        for zone, trace in zip(zones, traces, strict=True)
    )


def _hourly(zone: Candidate, trace: Trace, at: datetime) -> float:
    if not trace.prices:
        return zone.hourly
    tick = int((at - trace.begins) / trace.gap)
    before = [price for price in trace.prices if price.tick <= tick]
    known = before[-1] if before else trace.prices[0]
    return float(known.hourly) * zone.nodes


def _calendar(
    lives: Sequence[Begun], traces: Sequence[Trace], record: _Record | None
) -> CapacityCalendar:
    cells: defaultdict[Slot, list[Begun]] = defaultdict(list)
    hours: defaultdict[int, list[Begun]] = defaultdict(list)
    for life in lives:
        cells[Slot(life.at.weekday(), life.at.hour)].append(life)
        hours[life.at.hour].append(life)
    seen = statistics.fmean(trace.seen_share for trace in traces)
    begins = record.begins if record else traces[0].begins
    ends = record.ends if record else begins
    return CapacityCalendar(
        begins=begins,
        ends=ends,
        places=tuple(str(trace.place) for trace in traces),
        seen_share=seen,
        lives=len(lives),
        cells={slot: Cell.of(those) for slot, those in sorted(cells.items())},
        hours={hour: Cell.of(those) for hour, those in sorted(hours.items())},
        whole=Cell.of(lives) if lives else None,
        doubt=_doubt(ends - begins, record.tick if record else HOUR, len(lives), seen),
    )


def _doubt(lasts: timedelta, tick: timedelta, lives: int, seen: float) -> str:
    """The first thing that is missing, in a sentence. A record ends with its last whole tick."""
    days = lasts / timedelta(days=1)
    if not lives:
        return f"The record of {days:.1f} days is too short for even one life of this job."
    if lasts <= timedelta(days=_LEAST_DAYS) - tick:
        return (
            f"The record has {days:.1f} days, and hours of the week need {_LEAST_DAYS}: "
            "read nothing into single hours."
        )
    if seen < _LEAST_SEEN:
        return (
            f"Only {100 * seen:.0f} % of the record was seen, the rest is taken to have stayed "
            "as it was: read nothing into single hours."
        )
    return ""
