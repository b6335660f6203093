"""Choose the checkpoint interval: planned, and chosen anew when a generation opens (ADR 0045).

The interval is fixed while a generation runs. The cost of a save is estimated at first, and
measured by the trainer from the first save on; a save on an eviction notice starts at once.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from service.domain.performance.layout import Layout
from service.domain.spot.eviction_hazard import BAND_WEIGHT
from trainer.contract import BLOCK, Message, SaveCost

LEAST, MOST = 5.0, 3600.0  # seconds between two saves, whatever the formula says
STATE_BYTES = 12  # per trained parameter: fp32 master and two moments
COPY = 15e9  # bytes per second and GPU into host memory, all at once; assumed, not measured
CAPPED, UNCAPPED = 0.9e9, 1.8e9  # bytes/s of a node's uploads while it trains, and once it stops
NOTICE, COMMIT, SLACK = 30.0, 2.0, 3.0  # seconds: Azure's, ours, and until the wire must be idle
ANSWERED = 0.95  # of evictions come with a notice that we hear in time; assumed
BLOCK_DOLLARS = 0.055 / 10_000  # a write to the hot tier; Microsoft's sample prices, 2026-11
NOTICED_WITHIN = 30.0  # seconds until trainers have received a stop directive and ended
_PLAN_WEIGHT = 10.0  # evictions that the plan's share of answered ones counts for
_BLOCKS = 2**31  # a save has fewer, whatever a node says


@dataclass(frozen=True, kw_only=True)
class Cadence(Message):
    """The figures behind the best interval, beside the cost of a save."""

    evictions_per_hour: float  # of the whole job: any of its machines
    answered: float  # share of them whose notice leaves the time for a save
    seconds_per_block: float  # what Blob asks for a block, as time of the job's machines

    @property
    def unanswered_per_hour(self) -> float:
        """Return the evictions per hour that lose unsaved work."""
        return self.evictions_per_hour * (1 - self.answered)


@dataclass(frozen=True, kw_only=True)
class CheckpointInterval:
    """The checkpoint interval of a generation, with the figures behind it."""

    seconds: float
    cadence: Cadence

    def as_progress(self) -> dict[str, Any]:
        """Return the members that a job's progress keeps of it."""
        return {"save_every": self.seconds, "save_by": self.cadence.to_plain()}


@dataclass(frozen=True, kw_only=True)
class SaveHistory:
    """The saves and evictions of a job, known when a generation opens."""

    planned: CheckpointInterval  # for the offering of the attempt, with ...
    nodes: int  # ... this number of machines
    cost: SaveCost | None  # of a save; None: none was measured
    evictions: int = 0
    judged: int = 0  # evictions after which a generation has opened already
    unanswered: int = 0  # of them, those after which steps were done again
    trained_hours: float = 0.0

    def interval(self, machines: int, dollars_per_hour: float) -> CheckpointInterval:
        """Return the interval of a generation on ``machines`` machines.

        ``dollars_per_hour``: price of all of them together.

        The plan's rate of evictions counts for two of them (Gamma-Poisson), its share of answered
        ones for ten (Beta-Bernoulli); the evictions and hours of the job itself move both.
        """
        if self.cost is None:
            return self.planned
        before = self.planned.cadence
        rate, share = before.evictions_per_hour * machines / self.nodes, before.answered
        if rate > 0:
            rate = (BAND_WEIGHT + self.evictions) / (BAND_WEIGHT / rate + self.trained_hours)
        if share > 0:
            answered = _PLAN_WEIGHT * share + self.judged - self.unanswered
            share = answered / (_PLAN_WEIGHT + self.judged)
        now = Cadence(
            evictions_per_hour=rate,
            answered=share,
            seconds_per_block=seconds_per_block(dollars_per_hour),
        )
        cost = self.cost
        best = best_interval(now, stall=cost.stall, upload=cost.upload, blocks=cost.blocks)
        return CheckpointInterval(seconds=best, cadence=now)


def best_interval(cadence: Cadence, *, stall: float, upload: float, blocks: int) -> float:
    """Return the seconds between two saves that lose the least time and money.

    `T* = max(u - s, sqrt(2 (s + c) / (L (1 - p))))`: with p = u = c = 0 it is Young's and Daly's. A
    save stops training for ``stall`` (s), uploads for ``upload`` (u) seconds, in which the next one
    is skipped, and costs ``blocks`` blocks (c). An error by a factor of two costs less than half a
    percent, so evictions may be a guess.
    """
    unanswered = cadence.unanswered_per_hour / 3600
    cost = stall + blocks * cadence.seconds_per_block
    best = math.sqrt(2 * cost / unanswered) if unanswered > 0 else MOST
    return min(max(best, upload - stall, LEAST), MOST)


def plan_interval(
    layout: Layout,
    trained: int,
    *,
    step: float,
    evictions_per_hour: float,
    dollars_per_hour: float,
    noticed: bool = True,
) -> tuple[float, Cadence]:
    """Return the seconds between two saves and the figures behind it, for the whole job.

    ``noticed``: whether machines there hear of their eviction before it comes.
    """
    state = trained * STATE_BYTES
    on_node = state / layout.nodes
    stall = on_node / layout.processes_per_node / COPY
    needs = step / layout.accumulation + stall + on_node / UNCAPPED + COMMIT
    cadence = Cadence(
        evictions_per_hour=evictions_per_hour,
        answered=ANSWERED if noticed and needs <= NOTICE - SLACK else 0.0,
        seconds_per_block=seconds_per_block(dollars_per_hour),
    )
    blocks = -(-state // BLOCK)
    return best_interval(cadence, stall=stall, upload=on_node / CAPPED, blocks=blocks), cadence


def lost_to_eviction(interval: float, answered: float) -> tuple[float, float]:
    """Return the seconds of training that an eviction undoes: their mean and their square's mean.

    ``interval``: seconds between two saves; ``answered``: share of evictions whose notice came in
    time for a save. Those lose nothing; of the others each loses a uniform part of ``interval``.
    """
    unanswered = 1 - answered
    return unanswered * interval / 2, unanswered * interval**2 / 3


def seconds_to_save(layout: Layout, trained: int, *, step: float, nodes: int) -> float:
    """Return the longest time in seconds in which ``nodes`` nodes save and stop, as planned.

    They receive the directive, end a step of ``step`` seconds, copy the state of ``trained``
    parameters off their GPUs, upload and commit it. Steps may take twice as long as planned, and
    the rest four times: a node that is later loses the steps since the last periodic checkpoint.
    """
    on_node = trained * STATE_BYTES / nodes
    moves = on_node / layout.processes_per_node / COPY + on_node / CAPPED + COMMIT
    return NOTICED_WITHIN + 2 * step + 4 * moves


def seconds_per_block(dollars_per_hour: float) -> float:
    """Return the price of writing a block, as seconds of machines at this price."""
    return BLOCK_DOLLARS / dollars_per_hour * 3600 if dollars_per_hour > 0 else 0.0


def save_cost(cost: SaveCost | None) -> dict[str, Any]:
    """Return what a job's progress keeps of a measured save; nonsense is left out."""
    if cost is None or not (_possible(cost.stall) and _possible(cost.upload)):
        return {}
    return {"save_cost": cost.to_plain()} if 0 <= cost.blocks < _BLOCKS else {}


def spot_interval(progress: Mapping[str, Any]) -> float | None:
    """Return the seconds between two saves on Spot of the newest generation; None: as planned.

    The longest interval is that of on demand, and says nothing of Spot.
    """
    interval: float | None = progress.get("save_every")
    return interval if interval is not None and interval < MOST else None


def _possible(seconds: float) -> bool:
    """Return whether the number is a length of time; JSON has finite numbers only."""
    return math.isfinite(seconds) and seconds >= 0
