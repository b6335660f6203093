"""Runs of every policy under the same conditions.

The zones of a folder are used one by one and together, from the same random start times.
"""

import random
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.policy import ours, rivals
from bench.policy.nomad import SkyNomad
from bench.policy.optimum import optimum
from bench.policy.traces import TraceFolder
from bench.policy.world import ReplayWorld, Result
from service.domain.placement.policy_state import MoveMode
from service.domain.simulation.simulator import AvailabilitySignals

DEADLINES = (1.1, 1.25, 1.5, 2.0)
REKINDLE, ORACLE = "rekindle", "optimum"
WARM = "rekindle_with_history"
STAYING, ASKING = "rekindle_staying", "rekindle_asking"
RIVALS = ("on_demand", "spot_only", "greedy", "uniform_progress", "skynomad")


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Parameters of a replay: times in hours, money in on-demand hours."""

    work_h: float
    cold_h: float
    lost_h: float
    ratio: float
    egress_h: float
    windows: int
    seed: int
    history: bool
    staying: bool
    asking: bool = False
    signals: AvailabilitySignals = ours.DEFAULT_SIGNALS


@dataclass(frozen=True, kw_only=True)
class PolicyRun:
    """Result of one job under one policy; the cost is a share of the on-demand cost."""

    folder: str
    zones: str  # "one" or "all"
    deadline: float
    policy: str
    cost: float
    late: bool


def lives(folder: TraceFolder, rules: Rules) -> Iterator[PolicyRun]:
    """Yield all runs in a folder's traces; none where the traces are shorter than the deadline."""
    everything = tuple(range(len(folder.zones)))
    alone = [(z,) for z in everything if any(folder.capacity[z])]
    sets = [*alone, *([everything] if len(everything) > 1 else [])]
    for deadline in DEADLINES:
        for zones in sets:
            world = _world(folder, zones, deadline, rules)
            if world.work + world.cold > world.deadline:
                continue  # even on demand from the start would be late
            for begin in _start_ticks(folder, world, zones, rules):
                for policy, result in _results(folder, zones, world, begin, rules):
                    yield PolicyRun(
                        folder=folder.name,
                        zones="one" if len(zones) == 1 else "all",
                        deadline=deadline,
                        policy=policy,
                        cost=result.cost / world.work,
                        late=result.finished is None or result.finished > world.deadline,
                    )


def _world(folder: TraceFolder, zones: Sequence[int], deadline: float, rules: Rules) -> ReplayWorld:
    ticks = 3600 / folder.gap_s
    work = max(1, round(rules.work_h * ticks))
    return ReplayWorld(
        work=work,
        deadline=round(work * deadline),
        cold=max(1, round(rules.cold_h * ticks)),
        lost=round(rules.lost_h * ticks),
        ratio=rules.ratio,
        egress=rules.egress_h * ticks,
        regions=tuple(region(folder.zones[z]) for z in zones),
        tick_s=folder.gap_s,
    )


def region(zone: str) -> str:
    """Return the region of a zone name: us-east-1a_v100_1 is in us-east-1.

    >>> region("us-east-1a_v100_1"), region("us-central1-a"), region("b")
    ('us-east-1', 'us-central1', 'b')
    """
    name = zone.partition("_")[0]
    if len(name) > 2 and name[-1].isalpha() and (name[-2].isdigit() or name[-2] == "-"):
        name = name[:-1].rstrip("-")
    return name


def _start_ticks(
    folder: TraceFolder, world: ReplayWorld, zones: Sequence[int], rules: Rules
) -> list[int]:
    before = world.deadline if rules.history else 0  # time for an earlier job
    room = folder.ticks - world.deadline - before
    name = f"{rules.seed} {folder.name} {zones} {world.deadline}"
    rng = random.Random(zlib.crc32(name.encode()))  # noqa: S311 - no secret
    return [before + rng.randrange(room) for _ in range(rules.windows)] if room > 0 else []


def _results(
    folder: TraceFolder, zones: Sequence[int], world: ReplayWorld, begin: int, rules: Rules
) -> Iterator[tuple[str, Result]]:
    capacity = [folder.capacity[z] for z in zones]
    empty_experience, signals = ours.empty_experience, rules.signals
    yield REKINDLE, ours.play(world, capacity, begin, empty_experience(world), signals=signals)
    if rules.staying:
        yield STAYING, ours.play(world, capacity, begin, empty_experience(world), MoveMode.STAYS)
    if rules.asking:
        moves = MoveMode.ASKS_FIRST
        yield ASKING, ours.play(world, capacity, begin, empty_experience(world), moves)
    if rules.history:
        experience = empty_experience(world)
        ours.play(world, capacity, begin - world.deadline, experience, signals=signals)
        yield WARM, ours.play(world, capacity, begin, experience, signals=signals)
    for name in RIVALS:
        policy = SkyNomad() if name == "skynomad" else rivals.POLICIES[name]
        yield name, rivals.play(policy, world, capacity, begin)
    best = optimum(world, capacity, begin)
    yield ORACLE, Result(cost=best, finished=world.deadline)
