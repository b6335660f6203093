"""Goodput of simulated runs at the interval that jobs choose, relative to the optimum.

States range from adapters to 175 billion parameters, hazards are Azure's five eviction bands. Both
come from the research behind the interval. Assumed speeds: uploads at 70 % of a node's Ethernet,
copies at 15 GB/s for each GPU. The simulation steps through saves, uploads and evictions and uses
no formula.
"""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.planner.closed_form import EvictionModel, SaveTimes, goodput, optimal_interval
from service.domain.planning.checkpoint_interval import Cadence, best_interval

COPY, UPLOAD, LOAD = 15e9, 2.1e9, 2.1e9  # bytes/s: per GPU, per node, per node
GPUS = 8
RESTART, NOTICE = 300.0, 30.0  # seconds
POLL_AND_COMMIT = 3.0
LEAST = 0.5  # shortest interval of the optimum, seconds of training
NOTICED_SHARE = 0.95  # share of evictions with a notice in time
BANDS = {"0-5%": 0.025, "5-10%": 0.075, "10-15%": 0.125, "15-20%": 0.175, "20%+": 0.30}
STATES = (  # name, bytes, nodes, step time in seconds
    ("adapters", 2.6e9, 1, 4.0),
    ("26 GB", 26e9, 1, 6.0),
    ("7B", 98e9, 1, 4.0),
    ("13B", 182e9, 2, 6.0),
    ("70B", 980e9, 8, 15.0),
    ("175B", 2.8e12, 32, 30.0),
)
RIVAL_INTERVALS = {"every_5_min": 300.0, "every_30_min": 1800.0, "every_1000_steps": 15_000.0}


@dataclass(frozen=True, kw_only=True)
class GoodputCase:
    """One state size in one eviction band."""

    state: str
    band: str
    save: SaveTimes
    hazard: EvictionModel

    @property
    def chosen_interval(self) -> float:
        """Interval between saves in seconds, by the formula that planner and trainer share."""
        cadence = Cadence(
            evictions_per_hour=3600 * self.hazard.evictions_per_second,
            answered=self.hazard.answered,
            seconds_per_block=0.0,
        )
        return best_interval(cadence, stall=self.save.stall, upload=self.save.upload, blocks=0)

    @property
    def best(self) -> float:
        """Best possible goodput, by the closed form."""
        most = 10 / self.hazard.evictions_per_second
        interval = optimal_interval(self.save, self.hazard, least=LEAST, most=most)
        return goodput(interval, self.save, self.hazard)


@dataclass(frozen=True, kw_only=True)
class GoodputOutcome:
    """Simulated goodput of one case, and of its rivals."""

    case: GoodputCase
    simulated: float
    by_formula: float  # the closed form at the same interval
    rivals: dict[str, float]  # simulated

    @property
    def ratio(self) -> float:
        """Simulated goodput divided by the best possible goodput."""
        return self.simulated / self.case.best


def cases() -> Iterator[GoodputCase]:
    """Yield every state in every band.

    Machines are evicted one by one, which is the pessimistic case.
    """
    for state, size, nodes, step in STATES:
        stall = size / (GPUS * nodes) / COPY
        upload = size / nodes / UPLOAD
        room = NOTICE - POLL_AND_COMMIT - stall - upload
        answered = NOTICED_SHARE * max(0.0, min(1.0, room / step))
        for band, share in BANDS.items():
            hazard = EvictionModel(
                evictions_per_second=nodes * -math.log(1 - share) / 3600,
                answered=answered,
                recovery=RESTART + size / nodes / LOAD,
                notice=NOTICE if answered else 0.0,
            )
            yield GoodputCase(
                state=state,
                band=band,
                save=SaveTimes(stall=stall, upload=upload),
                hazard=hazard,
            )


def outcomes(evictions: int, seed: int) -> list[GoodputOutcome]:
    """Simulate every case, each with its own random seed."""
    return [_simulate_case(case, evictions, f"{seed}/{case.state}/{case.band}") for case in cases()]


def _simulate_case(case: GoodputCase, evictions: int, seed: str) -> GoodputOutcome:
    return GoodputOutcome(
        case=case,
        simulated=simulated(case, case.chosen_interval, evictions, seed),
        by_formula=goodput(case.chosen_interval, case.save, case.hazard),
        rivals={
            name: simulated(case, max(every, case.save.upload), evictions, seed)
            for name, every in RIVAL_INTERVALS.items()
        },
    )


def simulated(case: GoodputCase, interval: float, evictions: int, seed: str) -> float:
    """Return the share of paid time that becomes durable training, over ``evictions`` evictions.

    The same seed gives the same evictions.
    """
    rng = random.Random(seed)  # noqa: S311 - the same evictions every time
    durable_seconds = paid_seconds = 0.0
    for _ in range(evictions):
        lifetime = rng.expovariate(case.hazard.evictions_per_second)
        done, durable = _until_evicted(lifetime, interval, case.save)
        durable_seconds += done if rng.random() < case.hazard.answered else durable
        paid_seconds += lifetime + case.hazard.notice + case.hazard.recovery
    return durable_seconds / paid_seconds


def _until_evicted(lifetime: float, interval: float, save: SaveTimes) -> tuple[float, float]:
    """Return the seconds of training until the eviction, and the part that was uploaded by then."""
    now = done = durable = 0.0
    while now + interval < lifetime:
        now += interval
        done += interval
        now += save.stall
        if now + save.upload <= lifetime:
            durable = done
        if now >= lifetime:
            return done, durable
    return done + lifetime - now, durable


def lowest(outcomes: Sequence[GoodputOutcome]) -> GoodputOutcome:
    """Return the outcome with the lowest ratio to the optimum."""
    return min(outcomes, key=lambda outcome: outcome.ratio)
