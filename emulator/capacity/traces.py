"""Capacity over time: how many machines there are for Spot (or for on-demand) in one place.

A trace is a pure function of time. It has no memory and no cursor, so it says the same whenever,
however often and in whatever order it is asked, before and after a restart.
"""

import bisect
import random
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Protocol

Steps = list[tuple[float, int]]  # from when, how many; the first is from the moment asked for
DAY = 86_400.0
HOUR = 3600.0
LONGEST_ORDER = 8  # times the mean; a longer one is cut there, so that only so much must be seen


class MachinesOverTime(Protocol):
    """Capacity that stays for a while, then changes."""

    @property
    def plenty(self) -> int:
        """The most there ever is."""
        ...

    def steps(self, since: float, until: float) -> Steps:
        """Return the capacity at ``since``, and every change up to and including ``until``."""
        ...


@dataclass(frozen=True)
class Constant:
    """Always the same."""

    count: int

    @property
    def plenty(self) -> int:
        """The most there ever is."""
        return self.count

    def steps(self, since: float, until: float) -> Steps:  # noqa: ARG002 - as every trace has it
        """One step."""
        return [(since, self.count)]


@dataclass(frozen=True)
class Recorded:
    """A recording, one count every ``gap`` seconds from ``start`` on; it begins anew at its end."""

    counts: tuple[int, ...]
    gap: float
    start: float

    @property
    def plenty(self) -> int:
        """The most there ever is."""
        return max(self.counts)

    def steps(self, since: float, until: float) -> Steps:
        """Return the recorded counts, without those that change nothing."""
        first, last = (int((at - self.start) // self.gap) for at in (since, until))
        found = [(since, self._count(first))]
        for tick in range(first + 1, last + 1):
            if self._count(tick) != found[-1][1]:
                found.append((self.start + tick * self.gap, self._count(tick)))
        return found

    def _count(self, tick: int) -> int:
        return self.counts[tick % len(self.counts)]


@dataclass(frozen=True)
class Random:
    """``total`` machines, less what the orders of others hold: a queue of batches, M^X/M/inf.

    Orders come as a Poisson process, ``orders_per_hour``. Each takes a geometric number of
    machines at once (mean ``order_size``), which is the burst, and keeps them for an exponential
    time (mean ``order_hours``). What is over ``total`` is not there to be taken. The orders that
    come in one day are drawn from a generator of that day's own: hence no memory is needed.
    """

    seed: str  # with the place in it, so that places differ
    total: int
    orders_per_hour: float
    order_size: float
    order_hours: float

    @property
    def plenty(self) -> int:
        """The most there ever is."""
        return self.total

    def steps(self, since: float, until: float) -> Steps:
        """Day by day, what the orders leave."""
        found: Steps = []
        for day in range(int(since // DAY), int(until // DAY) + 1):
            found += _day(self, day)
        first = bisect.bisect_right(found, since, key=lambda step: step[0]) - 1
        last = bisect.bisect_right(found, until, key=lambda step: step[0])
        return _changes([(since, found[first][1]), *found[first + 1 : last]])


def at(trace: MachinesOverTime, now: float) -> int:
    """Return the capacity now."""
    return trace.steps(now, now)[0][1]


def lowest(trace: MachinesOverTime, since: float, until: float) -> int:
    """Return the lowest capacity in a span of time."""
    return min(count for _, count in trace.steps(since, until))


def machine_hours(trace: MachinesOverTime, since: float, until: float) -> float:
    """Capacity summed up over a span of time."""
    steps = [*trace.steps(since, until), (until, 0)]
    return sum(count * (end - begin) for (begin, count), (end, _) in pairwise(steps)) / HOUR


def falls(trace: MachinesOverTime, since: float, until: float) -> int:
    """Return the number of machines taken back in a span of time."""
    counts = [count for _, count in trace.steps(since, until)]
    return sum(max(before - after, 0) for before, after in pairwise(counts))


@lru_cache(maxsize=4096)
def _day(trace: Random, day: int) -> Steps:
    """Return the steps of one day, from its beginning."""
    begin, end = day * DAY, (day + 1) * DAY
    reach = int(trace.order_hours * LONGEST_ORDER * HOUR // DAY) + 1
    changes: dict[float, int] = {begin: 0}
    for earlier in range(day - reach, day + 1):
        for come, gone, size in _orders(trace, earlier):
            if come < end and gone > begin:
                changes[max(come, begin)] = changes.get(max(come, begin), 0) + size
                changes[gone] = changes.get(gone, 0) - size
    taken, found = 0, []
    for moment in sorted(m for m in changes if m < end):
        taken += changes[moment]
        found.append((moment, max(trace.total - taken, 0)))
    return found


@lru_cache(maxsize=4096)
def _orders(trace: Random, day: int) -> tuple[tuple[float, float, int], ...]:
    """Draw the orders that arrive on one day: start, end, number of machines."""
    draw = random.Random(f"{trace.seed}/{day}")  # noqa: S311 - simulation, no secret
    longest = trace.order_hours * LONGEST_ORDER
    come, found = day * DAY, []
    while trace.orders_per_hour > 0:
        come += draw.expovariate(trace.orders_per_hour) * HOUR
        if come >= (day + 1) * DAY:
            break
        hours = min(draw.expovariate(1 / trace.order_hours), longest)
        size = 1
        while draw.random() > 1 / trace.order_size:
            size += 1
        found.append((come, come + hours * HOUR, size))
    return tuple(found)


def _changes(steps: Steps) -> Steps:
    """Without the steps that change nothing."""
    return steps[:1] + [after for before, after in pairwise(steps) if after[1] != before[1]]
