"""Capacity over time: how many machines there are for Spot (or for on-demand) in one capacity pool.

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
        changes = [(since, self._count(first))]
        for tick in range(first + 1, last + 1):
            if self._count(tick) != changes[-1][1]:
                changes.append((self.start + tick * self.gap, self._count(tick)))
        return changes

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

    seed: str  # with the pool in it, so that pools differ
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
        changes: Steps = []
        for day in range(int(since // DAY), int(until // DAY) + 1):
            changes += _day(self, day)
        first = bisect.bisect_right(changes, since, key=lambda step: step[0]) - 1
        last = bisect.bisect_right(changes, until, key=lambda step: step[0])
        return _changes([(since, changes[first][1]), *changes[first + 1 : last]])


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
        for arrival, departure, size in _orders(trace, earlier):
            if arrival < end and departure > begin:
                changes[max(arrival, begin)] = changes.get(max(arrival, begin), 0) + size
                changes[departure] = changes.get(departure, 0) - size
    occupied, steps = 0, []
    for moment in sorted(m for m in changes if m < end):
        occupied += changes[moment]
        steps.append((moment, max(trace.total - occupied, 0)))
    return steps


@lru_cache(maxsize=4096)
def _orders(trace: Random, day: int) -> tuple[tuple[float, float, int], ...]:
    """Draw the orders that arrive on one day: start, end, number of machines."""
    draw = random.Random(f"{trace.seed}/{day}")  # noqa: S311 - simulation, no secret
    longest = trace.order_hours * LONGEST_ORDER
    arrival, orders = day * DAY, []
    while trace.orders_per_hour > 0:
        arrival += draw.expovariate(trace.orders_per_hour) * HOUR
        if arrival >= (day + 1) * DAY:
            break
        hours = min(draw.expovariate(1 / trace.order_hours), longest)
        size = 1
        while draw.random() > 1 / trace.order_size:
            size += 1
        orders.append((arrival, arrival + hours * HOUR, size))
    return tuple(orders)


def _changes(steps: Steps) -> Steps:
    """Without the steps that change nothing."""
    return steps[:1] + [after for before, after in pairwise(steps) if after[1] != before[1]]
