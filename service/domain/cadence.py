"""How often a job saves: before anything was measured, and as evictions and prices move.

What a save costs the trainer measures, and chooses by the same formula (`trainer/cadence.py`). What
it cannot know it is told while it trains: the evictions of where it runs now, how many of the job's
own were answered, and the price (ADR 0045).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from service.domain import wording
from service.domain.hazard import BAND_WEIGHT, BURST, BURST_S, OFTENEST, RAREST
from service.domain.layout import Layout
from service.domain.traces import Place
from trainer.contract import (
    BLOCK,
    MOST,
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
NOTICED_WITHIN = 30.0  # seconds, until trainers that are told to stop have heard it and have ended
MOVED = 1.25  # times as much, or as little: then the trainer is told, and of intervals the user
_PLAN_WEIGHT = 10.0  # evictions that the plan's share of answered ones counts for
_RAISED = (1 + BURST) / 2  # times as often soon after an eviction next door, on average
_BLOCKS = 2**31  # a save has fewer, whatever a node says


def plan(
    layout: Layout,
    trained: int,
    *,
    step: float,
    evictions_per_hour: float,
    dollars_per_hour: float,
    noticed: bool = True,
) -> tuple[float, Cadence]:
    """Seconds between two saves, and what that rests on; all figures are those of the whole job.

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


def lost_to_eviction(every: float, answered: float) -> tuple[float, float]:
    """Return the seconds of training that an eviction undoes: their mean and their square's mean.

    ``every``: seconds between two saves; ``answered``: share of evictions whose notice came in time
    for a save. Those lose nothing; of the others each loses a uniform part of ``every``.
    """
    unanswered = 1 - answered
    return unanswered * every / 2, unanswered * every**2 / 3


def seconds_to_save(layout: Layout, trained: int, *, step: float, nodes: int) -> float:
    """Return the longest time in seconds in which ``nodes`` nodes save and stop, as planned.

    They hear the order, end a step of ``step`` seconds, copy the state of ``trained`` parameters
    off their GPUs, upload and commit it. Steps may take twice as long as planned, and the rest
    four times: who is not ready by then loses the steps since the last periodic checkpoint.
    """
    on_node = trained * STATE_BYTES / nodes
    moves = on_node / layout.processes_per_node / COPY + on_node / CAPPED + COMMIT
    return NOTICED_WITHIN + 2 * step + 4 * moves


def seconds_per_block(dollars_per_hour: float) -> float:
    """What Blob asks for a block, as time of machines that cost so much together."""
    return BLOCK_DOLLARS / dollars_per_hour * 3600 if dollars_per_hour > 0 else 0.0


@dataclass(frozen=True, kw_only=True)
class Lived:
    """What all jobs have seen of one offering's Spot machines lately."""

    machine_hours: float = 0.0
    evictions: int = 0  # of holds: what is evicted together counts once, for one of its machines


@dataclass(frozen=True, kw_only=True)
class Basis(Message):
    """What an interval that the user hears of rests on."""

    cadence: Cadence  # of all the machines that the attempt has when none is lost ...
    machines: int  # ... which are so many
    place: str

    @property
    def each_per_hour(self) -> float:
        """Evictions of one machine."""
        return self.cadence.evictions_per_hour / self.machines

    @property
    def each_costs(self) -> float:
        """US dollars per hour of one machine."""
        block = self.cadence.seconds_per_block * self.machines
        return BLOCK_DOLLARS * 3600 / block if block else 0.0


@dataclass(frozen=True, kw_only=True)
class Known(Message):
    """What the machines of one attempt are told, and how that began. Stored with the attempt."""

    told: Cadence
    since: float  # unix seconds
    said: Basis  # what the user heard of last, or was shown in the plan
    planned: Cadence  # what the run spec says ...
    planned_seconds: float  # ... and the interval by it, as long as no save was measured
    answered: float  # share of the job's evictions ...
    survived: int = 0  # ... with so many that the attempt has outlived

    def seconds(self, cadence: Cadence, cost: SaveCost | None) -> float:
        """The interval of the trainer by this cadence."""
        if cost is None:
            return rescaled(self.planned_seconds, self.planned, cadence)
        return interval_of(cadence, cost)


def basis(cadence: Cadence, machines: int, place: Place) -> Basis:
    """Of so many machines there."""
    where = f"{place.vm_size} in {place.region}"
    return Basis(cadence=cadence, machines=machines, place=where)


def usual(
    known: Known, *, machines: int, evictions_per_hour: float, hourly: float, noticed: bool = True
) -> Cadence:
    """What holds now, of machines that are evicted so often and cost so many dollars each."""
    return Cadence(
        evictions_per_hour=machines * evictions_per_hour,
        answered=known.answered if noticed else 0.0,
        seconds_per_block=seconds_per_block(machines * hourly),
    )


def saves(saving: Saving | None, generation: int) -> dict[str, Any]:
    """What a trainer says of its saves, as a job's progress keeps it; nonsense is left out.

    What a save costs stays known while the next attempt has measured none; how often one saves is
    true of its generation only.
    """
    if saving is None or not _possible(saving.every):
        return {}
    told: dict[str, Any] = {"save_every": saving.every, "save_generation": generation}
    cost = saving.cost
    if cost and _possible(cost.stall) and _possible(cost.upload) and 0 <= cost.blocks < _BLOCKS:
        told["save_cost"] = cost.to_plain()
    return told


def on_spot(progress: Mapping[str, Any]) -> float | None:
    """Seconds between two saves where machines may be evicted, by the trainer's last word.

    None: as planned. The longest interval is what is kept on demand, and says nothing of Spot.
    """
    every: float | None = progress.get("save_every")
    return every if every is not None and every < MOST else None


def _possible(seconds: float) -> bool:
    """As a length of time; JSON has finite numbers only."""
    return math.isfinite(seconds) and seconds >= 0


def evictions_per_hour(prior: float, lived: Lived) -> float:
    """Of one machine, when nothing special happens: Gamma-Poisson."""
    prior = min(max(prior, RAREST), OFTENEST)
    seen = BAND_WEIGHT + lived.evictions
    return min(seen / (BAND_WEIGHT / prior + lived.machine_hours), OFTENEST)


def raised(cadence: Cadence, evicted_s: float | None) -> Cadence:
    """The same so many seconds after an eviction of the same size and region; None: of none.

    The average of the raise, for as long as it lasts: an interval that followed its fall would be
    told eight times in ten minutes, to gain less than half a percent.
    """
    if evicted_s is None or evicted_s >= BURST_S:
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


def is_news(known: Known, now: Basis, cost: SaveCost | None) -> bool:
    """Whether the interval is off by a quarter from what the user heard of last."""
    return _apart(known.seconds(known.said.cadence, cost), known.seconds(now.cadence, cost))


def words(known: Known, now: Basis, cost: SaveCost | None, *, more_often: bool = False) -> str:
    """What the user is told then; ``more_often`` while machines next door are taken."""
    was, are = (wording.duration(known.seconds(b.cadence, cost)) for b in (known.said, now))
    more = ", for some minutes more often" if more_often else ""
    return f"Checkpoints every {are} instead of {was}{more}: {_because(known, now, cost)}."


def _because(known: Known, now: Basis, cost: SaveCost | None) -> str:
    """The input that alone would have moved the interval most, the way it went."""
    before = known.said
    if now.cadence.evictions_per_hour <= 0:
        return "on demand nothing is evicted"
    if before.cadence.evictions_per_hour <= 0:
        return f"Spot machines are evicted, here {now.each_per_hour:.2g} times per hour each"
    was, are = known.seconds(before.cadence, cost), known.seconds(now.cadence, cost)
    way = math.copysign(1.0, are - was)
    alone = {kind: known.seconds(c, cost) - was for kind, c in _swapped(before, now).items()}
    return max(alone, key=lambda kind: way * alone[kind])(before, now)


def _swapped(before: Basis, now: Basis) -> dict[Callable[[Basis, Basis], str], Cadence]:
    """What was, with one input as it is now; by the words for that."""
    old, ratio = before.cadence, now.machines / before.machines
    evictions, block = now.cadence.evictions_per_hour / ratio, now.cadence.seconds_per_block * ratio
    return {
        _evictions: replace(old, evictions_per_hour=evictions),
        _machines: replace(
            old,
            evictions_per_hour=old.evictions_per_hour * ratio,
            seconds_per_block=old.seconds_per_block / ratio,
        ),
        _answers: replace(old, answered=now.cadence.answered),
        _price: replace(old, seconds_per_block=block),
    }


def _evictions(before: Basis, now: Basis) -> str:
    was, are = before.each_per_hour, now.each_per_hour
    if before.place != now.place:
        here, there = f"{now.place} is evicted {are:.2g} times", f"{before.place} {was:.2g}"
        return f"a machine of {here} per hour, one of {there}"
    way = "rose" if are > was else "fell"
    return f"evictions of a machine here {way} from {was:.2g} to {are:.2g} per hour"


def _machines(before: Basis, now: Basis) -> str:
    return f"it has {wording.machines(now.machines)} instead of {before.machines}"


def _answers(before: Basis, now: Basis) -> str:
    was, are = 100 * before.cadence.answered, 100 * now.cadence.answered
    return f"{are:.0f} % of its evictions leave the time for a save, not {was:.0f} %"


def _price(before: Basis, now: Basis) -> str:
    return f"a machine costs ${now.each_costs:.2f} per hour instead of ${before.each_costs:.2f}"


def _apart(one: float, other: float) -> bool:
    low, high = sorted((one, other))
    return high > low * MOVED
