"""Solve the expected remaining cost of a job with a deadline by dynamic programming.

Unit of money: an hour of work on demand; of time: an hour. The state is the work left, the slack
(time left less work left), what is held, and since when the market is as it is (`age_hazard`).
Waiting consumes slack, so do cold starts and lost work; work on demand costs 1, on Spot
``ratio``. Solved from no work left upwards by implicit steps, which are stable however rare or
frequent evictions are. A state excludes every action that risks the deadline, so every figure
here is the cost of a policy that is never late.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from service.domain.spot.age_hazard import BUCKETS, WIDTHS

_PHASES = range(BUCKETS - 1, -1, -1)  # the oldest first: younger ones grow into them
_SWEEPS = 2
_LATE = 10.0  # an hour of slack that is missing; only keeps interpolation on the safe side


@dataclass(frozen=True, kw_only=True)
class CostModel:
    """Parameters of the solution; rates are per hour and by age bucket."""

    ratio: float  # Spot price over on-demand price, for the same work
    cold_start: float  # hours paid for before work goes on
    lost: float  # hours of work that an eviction undoes
    eviction_rates: tuple[float, ...]
    return_rates: tuple[float, ...]  # of capacity, when everything was refused
    failover_probability: float  # that another offering takes an evicted job at once
    grant_probability: float = 1.0  # that Spot takes a move from on demand; 0: no moves

    @property
    def to_leave(self) -> float:
        """Return the slack below which holding Spot risks the deadline."""
        return self.cold_start + self.lost

    @property
    def to_enter(self) -> float:
        """Return the slack below which starting on Spot risks the deadline."""
        return 2 * self.cold_start + self.lost


SlackTable = list[list[float]]  # by bucket and slack


@dataclass(frozen=True)
class CostToGo:
    """The solution on its grid, interpolated between the points."""

    terms: CostModel
    work: tuple[float, ...]
    slack: tuple[float, ...]
    spot: list[SlackTable]  # by work, bucket of the hold's age, slack
    start: list[list[float]]  # by work, slack: requesting Spot, granted
    wait: list[SlackTable]  # by work, bucket of the outage's age, slack
    on_demand: list[SlackTable]  # running, by the outage's age

    def cost_of_wait(self, work: float, slack: float, outage: int) -> float:
        """Return the cost of waiting now and acting optimally afterwards."""
        return self._between([row[outage] for row in self.wait], work, slack)

    def cost_of_start(self, work: float, slack: float) -> float:
        """Return the cost of starting on Spot now."""
        return self._between(self.start, work, slack)

    def cost_of_on_demand(self, work: float, slack: float, outage: int) -> float:
        """Return the cost of training on demand."""
        return self._between([row[outage] for row in self.on_demand], work, slack)

    def cost_of_move(self, work: float, slack: float, outage: int) -> float:
        """Return the cost of leaving on demand for Spot now, which may refuse."""
        granted, starts = self.terms.grant_probability, self.cost_of_start(work, slack)
        if granted == 1:
            return starts
        cold = self.terms.cold_start
        again = cold + self.cost_of_on_demand(work, slack - cold, outage)
        return granted * starts + (1 - granted) * min(self.cost_of_wait(work, slack, outage), again)

    def _between(self, rows: list[list[float]], work: float, slack: float) -> float:
        i, u = _interpolation_point(self.work, work)
        j, v = _interpolation_point(self.slack, slack)
        low = rows[i][j] * (1 - v) + rows[i][j + 1] * v
        high = rows[i + 1][j] * (1 - v) + rows[i + 1][j + 1] * v
        return low * (1 - u) + high * u


@lru_cache(maxsize=256)
def solve(terms: CostModel, most_work: float, most_slack: float) -> CostToGo:
    """Solve for up to these hours of work and slack; takes about ten milliseconds."""
    work = grid_points(terms.cold_start, most_work)
    slack = grid_points(terms.cold_start / 2, max(most_slack, 4 * terms.cold_start))
    solver = _Solver(terms, slack)
    for previous, point in pairwise(work):
        solver.step(point, point - previous)
    return CostToGo(
        terms,
        tuple(work),
        tuple(slack),
        solver.spot,
        solver.start,
        solver.wait,
        solver.on_demand,
    )


def grid_points(finest: float, end: float, fine: int = 8, growth: float = 1.15) -> list[float]:
    """Return points from 0 to ``end``: ``fine`` equal steps, then growing ones."""
    points, step = [0.0], finest
    while points[-1] < end:
        if len(points) > fine:
            step *= growth
        points.append(points[-1] + step)
    return points


def _interpolation_point(points: tuple[float, ...] | list[float], x: float) -> tuple[int, float]:
    """Return the index of the point below ``x`` and the fraction to the next one."""
    if x <= points[0]:
        return 0, 0.0
    if x >= points[-1]:
        return len(points) - 2, 1.0
    low, high = 0, len(points) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if points[middle] <= x:
            low = middle
        else:
            high = middle
    return low, (x - points[low]) / (points[high] - points[low])


class _Solver:
    """Fills the tables one row of work after another, with slack upwards inside a row."""

    def __init__(self, terms: CostModel, slack: list[float]) -> None:
        self.terms, self.slack = terms, slack
        empty = [[0.0] * len(slack) for _ in range(BUCKETS)]
        self.spot: list[SlackTable] = [empty]
        self.wait: list[SlackTable] = [empty]
        self.on_demand: list[SlackTable] = [empty]
        self.start: list[list[float]] = [[0.0] * len(slack)]
        d, lost_work = terms.cold_start, terms.lost
        self.after_start = [_interpolation_point(slack, s - d) for s in slack]
        self.after_half = [_interpolation_point(slack, s - d / 2) for s in slack]
        self.after_loss = [_interpolation_point(slack, s - lost_work) for s in slack]
        self.cold_eviction_probability = 1 - 2.718281828459045 ** (-terms.eviction_rates[0] * d)

    def step(self, work: float, hours: float) -> None:
        """Solve the row that is ``hours`` of work beyond the last row."""
        points = len(self.slack)
        for table, price in ((self.spot, self.terms.ratio), (self.on_demand, 1.0)):
            table.append([[v + price * hours for v in row] for row in table[-1]])
        self.wait.append([[v + hours for v in row] for row in self.wait[-1]])
        self.start.append([v + self.terms.ratio * hours for v in self.start[-1]])
        for j in range(points):
            for _ in range(_SWEEPS):
                self._on_demand(j, work, hours)
                self._wait(j)
                self._start(j)
                self._spot(j, hours)

    def _on_demand(self, j: int, work: float, hours: float) -> None:
        terms, row, last = self.terms, self.on_demand[-1], self.on_demand[-2]
        if not terms.grant_probability or self.slack[j] < terms.to_enter:
            for b in _PHASES:
                row[b][j] = work
            return
        start = self.start[-1][j]
        for b in _PHASES:
            ages = 1 / WIDTHS[b]
            older = row[b + 1][j] if ages else 0.0
            above, below = last[b][j] + hours + ages * hours * older, 1 + ages * hours
            moves = terms.return_rates[b] * hours
            then = start if terms.grant_probability == 1 else self._after_move(j, b, start)
            stay = above / below
            row[b][j] = min(stay, (above + moves * then) / (below + moves))

    def _after_move(self, j: int, b: int, start: float) -> float:
        """Return the cost of having left on demand before Spot answers."""
        granted = self.terms.grant_probability
        return granted * start + (1 - granted) * self._outage_cost(j, b)

    def _outage_cost(self, j: int, b: int) -> float:
        """Return the cost when Spot refuses: wait, or start on demand."""
        return min(self.wait[-1][b][j], self._begin_on_demand(j, b))

    def _begin_on_demand(self, j: int, b: int) -> float:
        d, short = self.terms.cold_start, self.terms.cold_start - self.slack[j]
        late = _LATE * short if short > 1e-9 else 0.0
        return d + late + _interpolate(self.on_demand[-1][b], self.after_start[j])

    def _wait(self, j: int) -> None:
        row = self.wait[-1]
        if self.slack[j] < self.terms.to_enter:  # no Spot any more: waiting is for nothing
            for b in _PHASES:
                row[b][j] = self._begin_on_demand(j, b)
            return
        time, start = self.slack[j] - self.slack[j - 1], self.start[-1][j]
        for b in _PHASES:
            ages, back = time / WIDTHS[b], self.terms.return_rates[b] * time
            older = self._outage_cost(j, b + 1) if ages else 0.0
            above = self._outage_cost(j - 1, b) + ages * older + back * start
            row[b][j] = above / (1 + ages + back)

    def _start(self, j: int) -> None:
        terms, d = self.terms, self.terms.cold_start
        if self.slack[j] < terms.to_enter:
            self.start[-1][j] = self._outage_cost(j, 0)
            return
        warm = terms.ratio * d + _interpolate(self.spot[-1][0], self.after_start[j])
        i, u = self.after_half[j]
        cold = terms.ratio * d / 2 + self._evicted(i) * (1 - u) + self._evicted(i + 1) * u
        evicted = self.cold_eviction_probability
        self.start[-1][j] = (1 - evicted) * warm + evicted * cold

    def _evicted(self, j: int) -> float:
        down = self._outage_cost(j, 0)
        q = self.terms.failover_probability
        return q * min(self.start[-1][j], down) + (1 - q) * down

    def _spot(self, j: int, hours: float) -> None:
        terms, row, last = self.terms, self.spot[-1], self.spot[-2]
        if self.slack[j] < terms.to_leave:
            for a in _PHASES:
                row[a][j] = self._begin_on_demand(j, 0)
            return
        i, u = self.after_loss[j]
        eviction_cost = (
            self._evicted(i) * (1 - u) + self._evicted(i + 1) * u + terms.ratio * terms.lost
        )
        for a in _PHASES:
            ages, dies = hours / WIDTHS[a], terms.eviction_rates[a] * hours
            older = row[a + 1][j] if ages else 0.0
            above = last[a][j] + terms.ratio * hours + ages * older + dies * eviction_cost
            row[a][j] = above / (1 + ages + dies)


def _interpolate(values: list[float], point: tuple[int, float]) -> float:
    i, u = point
    return values[i] * (1 - u) + values[i + 1] * u
