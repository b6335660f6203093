"""Do 80 % intervals hold eight lives of ten? Lives in invented weather of another law than the one
that forecasts assume: holds and droughts are lognormal, each world with its own."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

from service.domain.ages import Ages
from service.domain.odds import Job, Lived, forecast, one_life

JOB = Job(work_s=24 * 3600, cold_start_s=720, lost_s=300)
_DAYS = 10  # of history that a forecast may have seen
_SAMPLES = 100  # lives per forecast


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """Percent of lives whose cost and whose time lay in their intervals."""

    dollars_pct: float
    seconds_pct: float


def coverage(lives: int, seed: int) -> Coverage:
    """One forecast and one life per world."""
    draw = random.Random(seed)  # noqa: S311 - weather
    dollars = seconds = 0
    for _ in range(lives):
        hold, drought = _law(draw, 1.5), _law(draw, 1.0)
        holds, droughts = _history(hold, drought)
        odds = forecast(JOB, draw, lives=_SAMPLES, holds=holds, droughts=droughts)
        life: Lived = one_life(JOB, hold, drought)
        dollars += odds.dollars.holds(life.dollars)
        seconds += odds.seconds.holds(life.seconds)
    return Coverage(
        dollars_pct=round(100 * dollars / lives, 1), seconds_pct=round(100 * seconds / lives, 1)
    )


def _law(draw: random.Random, median_h: float) -> Callable[[], float]:
    """A world's holds or droughts: hours, with a median and a spread of its own."""
    middle = math.log(median_h) + draw.gauss(0, 0.7)
    spread = draw.uniform(0.8, 1.6)
    return lambda: draw.lognormvariate(middle, spread)


def _history(hold: Callable[[], float], drought: Callable[[], float]) -> tuple[Ages, Ages]:
    """What ten days of jobs there have recorded; what still lasted was cut."""
    left, holds, droughts = _DAYS * 24.0, Ages(), Ages()
    while left > 0:
        up, down = hold(), drought()
        holds += Ages.of([(min(up, left), up < left)])
        left -= up
        if left > 0:
            droughts += Ages.of([(min(down, left), down < left)])
            left -= down
    return holds, droughts
