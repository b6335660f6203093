"""What a job would have cost, had it begun at each hour of the last weeks. Pure.

The production policy lives the job in recorded capacity, once from every hour on. A record of our
own is of what we happened to ask for, so the answer says how much of it was really seen.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from service.domain.fleet import Offering
from service.domain.option import Option
from service.domain.simulation import Case, Experience, live
from service.domain.situation import Candidate
from service.domain.traces import Place, Trace
from service.domain.trial import FINEST_S, case_of, zones_of

HOUR = timedelta(hours=1)
LIVES_AT_MOST = 336  # two weeks of hours; of a longer record every second hour of the day, or third
SECONDS_AT_MOST = 8.0  # of computing: where lives are long fewer hours are lived from
_FINE = 24_000  # ticks of a life times what each looks at; of more ticks are coarser, to an hour
_MOST = 50_000  # the same, even so: one life would take as long as all of them may
_BESIDES = 4  # zones' worth of what a tick costs anyway
_STEPS = (1, 2, 3, 4, 6, 8, 12, 24)  # hours
_FEWEST = 8  # ticks of a short job, its start included, however far its deadline is
_TICKS = 60  # of work: a calendar has many lives and no need of the last per cent
_PATIENCE = timedelta(days=2)  # so long beyond its work a job without a deadline is followed
_LEAST_DAYS = 7
_LEAST_SEEN = 0.25  # of the record, for the hours to tell anything


class TooMuch(Exception):
    """One life alone would take as long as a calendar may; says so."""


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
    cut: str  # which hours were left out for want of time; "": none
    doubt: str  # why this is too little to go by; "": it is enough


class _Lived(NamedTuple):
    """The hours of every pass that came to its end, and what time left out."""

    lives: Sequence[Begun] = ()
    every: int = 1  # so many hours lie between two beginnings of a day, ...
    cut: bool = False  # ... and there was no time for more
    some: bool = False  # not even for one beginning of every day


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
    options: Sequence[Option],
    traces: Sequence[Trace],
    deadline_s: float | None,
    spent: Callable[[], float] = lambda: 0.0,
) -> CapacityCalendar | None:
    """By the options of a plan; None where no trace is of a place that they name.

    ``spent``: seconds of computing, counted from anywhere. Raises TooMuch.
    """
    spot = zones_of(options, {})
    matched = [(zone, trace) for zone in spot if (trace := _of(zone.offering, traces))]
    if not matched:
        return None
    zones, used = zip(*matched, strict=True)
    ticks, finest = _ticks(options[0], used), _finest(options[0], len(zones), deadline_s)
    case = _followed(case_of(options[0], zones, deadline_s, ticks, finest))
    record = _record(used, case)
    lived = _Lived()
    if record:
        lived = _Lives(case=case, record=record, traces=used).from_many(spent)
    return _calendar(lived, used, record)


def _ticks(first: Option, traces: Sequence[Trace]) -> int:
    """None longer than an hour, which is what a calendar tells apart, or finer than the record."""
    work_s = first.total_steps * first.seconds_per_step
    finest = max(trace.gap for trace in traces).total_seconds()
    return max(1, min(max(_TICKS, math.ceil(work_s / HOUR.total_seconds())), int(work_s / finest)))


def _finest(first: Option, zones: int, deadline_s: float | None) -> float:
    """Seconds of a tick, so that a life until a far deadline has not too many of them.

    Short work is not rounded up to such ticks: see `_followed`.
    """
    takes_s = first.recovery_seconds + first.total_steps * first.seconds_per_step
    dear = (deadline_s or 0.0) * (zones + _BESIDES) / _FINE
    return max(FINEST_S, min(dear, takes_s / _FEWEST, HOUR.total_seconds()))


def _followed(case: Case) -> Case:
    """The case with a nearer deadline, where its own is too far for ticks as short as these."""
    if case.deadline is None or case.tick_s >= HOUR.total_seconds():
        return case
    return replace(case, deadline=min(case.deadline, _FINE // (len(case.zones) + _BESIDES)))


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


@dataclass(frozen=True, kw_only=True)
class _Lives:
    """The job, begun at any time of a record."""

    case: Case
    record: _Record
    traces: Sequence[Trace]

    @property
    def needs(self) -> int:
        """Ticks that a life is followed for."""
        case, patience = self.case, math.ceil(_PATIENCE / self.record.tick)
        return (case.deadline or case.work + patience) + case.cold + 1

    def from_many(self, spent: Callable[[], float]) -> _Lived:
        """From every hour that enough of the record comes after, or the same ones of every day.

        Fewer hours come first, and more of them as long as there is time. Raises TooMuch.
        """
        hours, until = list(_hours(self.record, self.needs)), spent() + SECONDS_AT_MOST
        if hours:
            self._check()
        known: dict[datetime, Begun] = {}
        found = _Lived()
        for every, wanted in _finer(hours):
            fresh = [at for at in wanted if at not in known]
            for at in reversed(fresh):  # the newest first
                if known and spent() >= until:
                    some = _Lived([known[at] for at in sorted(known)], every, some=True)
                    return (found if found.lives else some)._replace(cut=True)
                known[at] = self.begun(at)
            found = _Lived([known[at] for at in wanted], every)
        return found

    def _check(self) -> None:
        """Whether one life can be told in time at all."""
        zones = len(self.record.weather)
        if self.needs * (zones + _BESIDES) > _MOST:
            days = int(_MOST / (zones + _BESIDES) * self.record.tick / timedelta(days=1))
            needed = math.ceil(self.needs * self.record.tick / timedelta(days=1))
            nearer = " or a nearer deadline" if self.case.deadline else ""
            raise TooMuch(
                f"A calendar of {zones} regions follows a job for {days} days at most, and this "
                f"one is followed for {needed}. Give it traces of at most "
                f"{max(_MOST // self.needs - _BESIDES, 1)} regions{nearer}."
            )

    def begun(self, at: datetime) -> Begun:
        """One life."""
        case, record = self.case, self.record
        tick = round((at - record.begins) / record.tick)
        weather = [zone[tick : tick + self.needs] for zone in record.weather]
        # Without a deadline a job waits for the first machines, at no cost.
        waits = 0 if case.deadline else _first(weather, self.needs)
        here = replace(case, zones=_priced(case.zones, self.traces, at))
        life = live(here, weather, waits, Experience.none(len(here.zones)))
        done = None if life.finished is None else life.finished + waits
        return Begun(
            at=at,
            dollars=life.dollars,
            hours=None if done is None else done * case.tick_s / HOUR.total_seconds(),
            in_time=None if case.deadline is None else done is not None and done <= case.deadline,
        )


def _first(weather: Sequence[Sequence[bool]], needs: int) -> int:
    """The tick at which a zone has capacity."""
    return next((i for i, zones in enumerate(zip(*weather, strict=True)) if any(zones)), needs)


def _hours(record: _Record, needs: int) -> Iterator[datetime]:
    """Full ones that ``needs`` ticks of the record come after."""
    last = record.begins + (record.ticks - needs) * record.tick
    first = record.begins.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    if first < record.begins:
        first += HOUR
    yield from (first + n * HOUR for n in range(math.floor((last - first) / HOUR) + 1))


def _finer(hours: Sequence[datetime]) -> Iterator[tuple[int, list[datetime]]]:
    """The same hours of every day: others on other days would tell weeks apart, and not hours."""
    for every in reversed(_STEPS):
        wanted = [at for at in hours if at.hour % every == 0]
        if every < _STEPS[-1] and len(wanted) > LIVES_AT_MOST:
            return
        yield every, wanted[-LIVES_AT_MOST:]


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


def _calendar(lived: _Lived, traces: Sequence[Trace], record: _Record | None) -> CapacityCalendar:
    lives = lived.lives
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
        cut=_cut(lived),
        doubt=_doubt(ends - begins, record.tick if record else HOUR, lived, seen),
    )


def _cut(lived: _Lived) -> str:
    """A sentence where time alone left hours out."""
    if not lived.cut or lived.some:
        return ""
    over = f"{SECONDS_AT_MOST:g} s of computing were over"
    return f"Only one of {lived.every} hours was lived from: {over}."


def _doubt(lasts: timedelta, tick: timedelta, lived: _Lived, seen: float) -> str:
    """The first thing that is missing, in a sentence. A record ends with its last whole tick."""
    days = lasts / timedelta(days=1)
    if not lived.lives:
        return f"The record of {days:.1f} days is too short for even one life of this job."
    if not seen:
        return (
            "No capacity is recorded yet for the Spot machines of this job, so they are assumed to "
            "be available at every hour and only prices differ. Run jobs on them, or use recorded "
            "traces: rekindle simulate JOB --calendar --traces DIR"
        )
    if lasts <= timedelta(days=_LEAST_DAYS) - tick:
        return (
            f"The record has {days:.1f} days, and hours of the week need {_LEAST_DAYS}: "
            "read nothing into single hours."
        )
    if lived.some:
        return (
            f"{SECONDS_AT_MOST:g} s of computing were over after {len(lived.lives)} lives, and even"
            " one hour of every day needs more: read nothing into single hours."
        )
    if seen < _LEAST_SEEN:
        return (
            f"Only {100 * seen:.0f} % of the record was seen, the rest is taken to have stayed "
            "as it was: read nothing into single hours."
        )
    return ""
