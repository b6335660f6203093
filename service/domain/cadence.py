"""How often a job saves: before anything was measured, and as evictions and prices move.

What a save costs the trainer measures, and chooses by the same formula (`trainer/cadence.py`). What
it cannot know it is told while it trains: the evictions of where it runs now, how many of the job's
own were answered, and the price (ADR 0045).
"""

import math
from dataclasses import dataclass, replace
from typing import Any

from service.domain import wording
from service.domain.hazard import BURST, BURST_S
from service.domain.layout import Layout
from trainer.contract import (
    BLOCK,
    Cadence,
    Message,
    SaveCost,
    Saving,
    best_interval,
    interval_of,
    rescaled,
)

STATE_BYTES = 12  # per trained parameter: fp32 master and two moments
COPY = 15e9  # bytes per second and GPU into host memory, all at once; assumed, not measured
CAPPED, UNCAPPED = 0.9e9, 1.8e9  # a node's uploads while it trains, and once it is told to go
NOTICE, COMMIT, SLACK = 30.0, 2.0, 3.0  # seconds: Azure's, ours, and until the wire must be idle
ANSWERED = 0.95  # of evictions come with a notice that we hear in time; assumed
BLOCK_DOLLARS = 0.055 / 10_000  # a write to the hot tier; Microsoft's sample prices, 2026-11
MOVED = 1.25  # times as much, or as little: then the trainer is told, and of intervals the user
_PRIOR_WEIGHT = 2.0  # evictions that Azure's band or the setting counts for, as in `hazard.py`
_PLAN_WEIGHT = 10.0  # evictions that the plan's share of answered ones counts for
_RAREST, _OFTENEST = 1e-3, 20.0  # evictions of a machine per hour that are taken for possible
_RAISED = (1 + BURST) / 2  # times as often soon after an eviction next door, on average


def plan(
    layout: Layout, trained: int, *, step: float, evictions_per_hour: float, dollars_per_hour: float
) -> tuple[float, Cadence]:
    """Seconds between two saves, and what that rests on; all figures are those of the whole job."""
    state = trained * STATE_BYTES
    on_node = state / layout.nodes
    stall = on_node / layout.processes_per_node / COPY
    needs = step / layout.accumulation + stall + on_node / UNCAPPED + COMMIT
    cadence = Cadence(
        evictions_per_hour=evictions_per_hour,
        answered=ANSWERED if needs <= NOTICE - SLACK else 0.0,
        seconds_per_block=seconds_per_block(dollars_per_hour),
    )
    blocks = -(-state // BLOCK)
    return best_interval(cadence, stall=stall, upload=on_node / CAPPED, blocks=blocks), cadence


def seconds_per_block(dollars_per_hour: float) -> float:
    """What Blob asks for a block, as time of machines that cost so much together."""
    return BLOCK_DOLLARS / dollars_per_hour * 3600 if dollars_per_hour > 0 else 0.0


@dataclass(frozen=True, kw_only=True)
class Lived:
    """What all jobs have seen of one offering's Spot machines lately."""

    machine_hours: float = 0.0
    evictions: int = 0  # of holds: what is evicted together counts once, for one of its machines
    evicted_s: float | None = None  # since the last one; None: there was none


@dataclass(frozen=True, kw_only=True)
class Known(Message):
    """What the machines of one attempt are told, and how that began. Stored with the attempt."""

    told: Cadence
    since: float  # unix seconds
    said: Cadence  # what the user heard of last, or was shown in the plan
    planned: Cadence  # what the run spec says ...
    planned_seconds: float  # ... and the interval by it, as long as no save was measured
    answered: float  # share of the job's evictions; none of them comes while the attempt lives

    def seconds(self, cadence: Cadence, cost: SaveCost | None) -> float:
        """The interval of the trainer by this cadence."""
        if cost is None:
            return rescaled(self.planned_seconds, self.planned, cadence)
        return interval_of(cadence, cost)


def first(
    every: float, planned: Cadence, *, said: Cadence | None, evictions: int, answered: int
) -> Known:
    """Before anything is told of an attempt; ``said`` to the user in an earlier one, if any was."""
    return Known(
        told=planned,
        since=0.0,
        said=said or planned,
        planned=planned,
        planned_seconds=every,
        answered=share_answered(planned.answered, evictions, answered),
    )


def usual(known: Known, *, machines: int, evictions_per_hour: float, hourly: float) -> Cadence:
    """What holds now, of machines that are evicted so often and cost so many dollars each."""
    return Cadence(
        evictions_per_hour=machines * evictions_per_hour,
        answered=known.answered,
        seconds_per_block=seconds_per_block(machines * hourly),
    )


def saves(saving: Saving | None) -> dict[str, Any]:
    """What a trainer says of its saves, as a job's progress keeps it; JSON has finite numbers only.

    What a save costs stays known while the next attempt has measured none.
    """
    if saving is None or not math.isfinite(saving.every):
        return {}
    told: dict[str, Any] = {"save_every": saving.every}
    cost = saving.cost
    if cost and math.isfinite(cost.stall) and math.isfinite(cost.upload):
        told["save_cost"] = cost.to_plain()
    return told


def evictions_per_hour(prior: float, lived: Lived) -> float:
    """Of one machine, when nothing special happens: Gamma-Poisson."""
    prior = min(max(prior, _RAREST), _OFTENEST)
    seen = _PRIOR_WEIGHT + lived.evictions
    return min(seen / (_PRIOR_WEIGHT / prior + lived.machine_hours), _OFTENEST)


def raised(cadence: Cadence, lived: Lived) -> Cadence:
    """The same within minutes of an eviction of the same size and region.

    The average of the raise, for as long as it lasts: an interval that followed its fall would be
    told eight times in ten minutes, to gain less than half a percent.
    """
    if lived.evicted_s is None or lived.evicted_s >= BURST_S:
        return cadence
    return replace(cadence, evictions_per_hour=cadence.evictions_per_hour * _RAISED)


def share_answered(planned: float, evictions: int, answered: int) -> float:
    """Of a job's evictions those after which nothing was done again: Beta-Bernoulli."""
    return (_PLAN_WEIGHT * planned + answered) / (_PLAN_WEIGHT + evictions)


def moved(before: Cadence, now: Cadence) -> bool:
    """Whether what the interval rests on is off by a quarter from what was told last.

    Counted from there, either way: what differs by less among itself is told once at most.
    """
    return _apart(before.unanswered_per_hour, now.unanswered_per_hour) or _apart(
        before.seconds_per_block, now.seconds_per_block
    )


def is_news(known: Known, usual: Cadence, cost: SaveCost | None) -> bool:
    """Whether the interval is off by a quarter from what the user heard of last."""
    return _apart(known.seconds(known.said, cost), known.seconds(usual, cost))


def words(known: Known, usual: Cadence, told: Cadence, cost: SaveCost | None) -> str:
    """What the user is told then; ``told`` to the trainer for now."""
    before, now = (wording.duration(known.seconds(c, cost)) for c in (known.said, usual))
    more = "" if told == usual else ", for some minutes more often"
    return f"Checkpoints every {now} instead of {before}{more}: {_because(known.said, usual)}."


def _because(before: Cadence, now: Cadence) -> str:
    """The input that has moved the interval most."""
    if now.evictions_per_hour <= 0:
        return "on demand nothing is evicted"
    if before.evictions_per_hour <= 0:
        return f"Spot machines are evicted, here about {now.evictions_per_hour:.2g} times per hour"
    moves = {
        _evictions: now.evictions_per_hour / before.evictions_per_hour,
        _answers: (1 - now.answered) / max(1 - before.answered, 1e-9),
        _price: now.seconds_per_block / max(before.seconds_per_block, 1e-9),
    }
    most = max(moves, key=lambda kind: abs(math.log(max(moves[kind], 1e-9))))
    return most(before, now)


def _evictions(before: Cadence, now: Cadence) -> str:
    was, are = before.evictions_per_hour, now.evictions_per_hour
    return f"evictions here {'rose' if are > was else 'fell'} from {was:.2g} to {are:.2g} per hour"


def _answers(before: Cadence, now: Cadence) -> str:
    was, are = 100 * before.answered, 100 * now.answered
    return f"{are:.0f} % of its evictions leave the time for a save, not {was:.0f} %"


def _price(before: Cadence, now: Cadence) -> str:
    was, are = (
        BLOCK_DOLLARS * 3600 / c.seconds_per_block if c.seconds_per_block else 0.0
        for c in (before, now)
    )
    return f"its machines cost ${are:.2f} per hour instead of ${was:.2f}"


def _apart(one: float, other: float) -> bool:
    low, high = sorted((one, other))
    return high > low * MOVED
