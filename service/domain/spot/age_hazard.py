"""How long things last, by their age: what was seen of holds and droughts, and rates from it.

Spot lifetimes have heavy tails: what has lasted is likely to last. A rate per age bucket says so,
and stays a Gamma-Poisson estimate: events over hours, with a prior of a few pseudo-events.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

EDGES = (0.5, 2.0, 8.0)  # hours: where one bucket ends and the next begins
BUCKETS = len(EDGES) + 1
WIDTHS = (0.5, 1.5, 6.0, math.inf)  # hours that a bucket lasts
_STARTS = (0.0, *EDGES)

# Events per hour by age, of all lifetimes alike: they fall about as 1/age in every public trace
# (docs/planning.md). One set serves holds, the other droughts.
HOLD_PRIOR = (1.2, 0.6, 0.18, 0.06)
DROUGHT_PRIOR = (1.1, 0.75, 0.22, 0.07)


@dataclass(frozen=True)
class Ages:
    """Hours seen and ends seen, by age bucket. Ends may be fewer than lives: some were cut."""

    hours: tuple[float, ...] = (0.0,) * BUCKETS
    ends: tuple[int, ...] = (0,) * BUCKETS

    def __add__(self, other: Self) -> "Ages":
        """Both experiences together."""
        return Ages(
            tuple(a + b for a, b in zip(self.hours, other.hours, strict=True)),
            tuple(a + b for a, b in zip(self.ends, other.ends, strict=True)),
        )

    @classmethod
    def of(cls, lives: Iterable[tuple[float, bool]], begun: float = 0.0) -> Self:
        """From lives as (hours, ended by itself); False: we cut it, or it still lasts.

        ``begun``: how old they were when we began to look; what was before was not seen.
        """
        hours, ends = [0.0] * BUCKETS, [0] * BUCKETS
        for lasted, ended in lives:
            age = begun + lasted
            for b, (start, width) in enumerate(zip(_STARTS, WIDTHS, strict=True)):
                hours[b] += max(0.0, min(age, start + width) - max(begun, start))
            ends[bucket(age)] += ended
        return cls(tuple(hours), tuple(ends))

    def rates(self, prior: tuple[float, ...], weight: float) -> tuple[float, ...]:
        """Ends per hour by bucket: Gamma posterior means; the prior counts ``weight`` ends each.

        >>> Ages((10.0, 0.0, 0.0, 0.0), (4, 0, 0, 0)).rates((1.0, 0.5, 0.2, 0.1), 2.0)
        (0.5, 0.5, 0.2, 0.1)
        """
        return tuple(
            (weight + seen) / (weight / before + hours)
            for before, seen, hours in zip(prior, self.ends, self.hours, strict=True)
        )


NOTHING = Ages()


def bucket(hours: float) -> int:
    """The bucket in which an age lies; an age on an edge lies below it."""
    return sum(hours > edge for edge in EDGES)


def expected_rest(rates: tuple[float, ...], age: float, horizon: float) -> float:
    """Hours that a life of this age still lasts on average, none counted past ``horizon`` hours."""
    rest, alive, at = 0.0, 1.0, age
    end = age + horizon
    for b in range(bucket(age), BUCKETS):
        until = min(end, _STARTS[b] + WIDTHS[b])
        rest += alive * -math.expm1(-rates[b] * (until - at)) / rates[b]
        alive *= math.exp(-rates[b] * (until - at))
        at = until
        if at >= end:
            break
    return rest


def quantile(rates: tuple[float, ...], age: float, share: float) -> float:
    """Hours from now in which such a share of all lives of this age have ended.

    >>> round(quantile((0.5, 0.5, 0.1, 0.1), 1.0, 1 - math.exp(-1.0)), 6)
    6.0
    """
    rest, at = -math.log1p(-share), age
    for b in range(bucket(age), BUCKETS - 1):
        until = _STARTS[b] + WIDTHS[b]
        if (spent := rates[b] * (until - at)) >= rest:
            return at + rest / rates[b] - age
        rest, at = rest - spent, until
    return at + rest / rates[-1] - age
