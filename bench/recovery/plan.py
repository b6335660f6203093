"""Which kills there will be, in which order: a pure function of number and seed.

A job walks through create, boot, load, step, save and commit; a kill of its machine makes it
walk again, and leaves an old scale set to delete. The plan knows what each kill leaves behind
and draws the next one among those that can follow, so that one recovery serves several kills.

A trainer that is killed three times in a row without a checkpoint between ends its job, as it
should. The plan never asks for that: after the second restart in a row the next kill first
waits for a newer checkpoint.
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    """Where a job is, as seen from outside."""

    CREATE = "create"  # the scale set is asked for or being made
    BOOT = "boot"  # machines run, no generation was opened on them yet
    LOAD = "load"  # a generation is opened, its first step is not done
    STEP = "step"  # it trains, and nothing is being saved
    SAVE = "save"  # a save is being written on the machine
    COMMIT = "commit"  # a whole save is on its way to Blob and to HEAD
    DELETE = "delete"  # a scale set is being deleted


class Kind(StrEnum):
    """What is struck."""

    SERVICE = "service"
    SUPERVISOR = "supervisor"
    TRAINER = "trainer"  # one rank
    LAUNCHER = "launcher"  # torchrun, whose workers outlive it
    VM = "vm"  # without notice
    EVICT = "evict"  # with Azure's notice; a node of Azure ML gets none, see PREEMPT
    PREEMPT = "preempt"  # what an eviction is in Azure ML: one node goes, its job restarts or ends


WALK = (Phase.CREATE, Phase.BOOT, Phase.LOAD, Phase.STEP, Phase.SAVE, Phase.COMMIT)
TRAINING = frozenset({Phase.STEP, Phase.SAVE, Phase.COMMIT})
MACHINE = frozenset({Kind.VM, Kind.EVICT, Kind.PREEMPT})
RESTART = frozenset({Kind.SUPERVISOR, Kind.TRAINER, Kind.LAUNCHER})
TRAINERS = frozenset({Kind.TRAINER, Kind.LAUNCHER})
MOST_RESTARTS = 2  # in a row without a checkpoint between

# How many of a hundred kills each phase and, within it, each kind is to get.
SHARES = {
    Phase.CREATE: 11,
    Phase.BOOT: 14,
    Phase.LOAD: 15,
    Phase.STEP: 20,
    Phase.SAVE: 14,
    Phase.COMMIT: 15,
    Phase.DELETE: 11,
}
KINDS: dict[Phase, dict[Kind, int]] = {
    Phase.CREATE: {Kind.SERVICE: 1},
    Phase.BOOT: {Kind.SERVICE: 3, Kind.SUPERVISOR: 3, Kind.VM: 3, Kind.EVICT: 3},
    Phase.LOAD: {
        Kind.SERVICE: 2,
        Kind.SUPERVISOR: 2,
        Kind.TRAINER: 2,
        Kind.LAUNCHER: 1,
        Kind.VM: 2,
        Kind.EVICT: 3,
    },
    **{
        phase: {
            Kind.SERVICE: 3,
            Kind.SUPERVISOR: 3,
            Kind.TRAINER: 3,
            Kind.LAUNCHER: 2,
            Kind.VM: 5,
            Kind.EVICT: 8,
        }
        for phase in (Phase.STEP, Phase.SAVE, Phase.COMMIT)
    },
    Phase.DELETE: {Kind.SERVICE: 1},
}


@dataclass(frozen=True, kw_only=True)
class Kill:
    """One strike: wait for the phase, then for ``delay`` of its usual length, then strike."""

    number: int
    kind: Kind
    phase: Phase
    delay: float  # 0 to 1
    pick: float  # 0 to 1: which of several machines
    after_commit: bool  # first wait until HEAD names something newer than at the last strike


@dataclass(frozen=True)
class _Job:
    """What the plan knows of a job after its last kill."""

    reached: int = 0  # index in WALK of the earliest phase that can be struck next
    deleting: bool = False  # an old scale set is about to be deleted
    restarts: int = 0  # in a row, at worst without a checkpoint


def plan(kills: int, seed: int, slots: int) -> list[list[Kill]]:
    """For each slot (jobs that live one after the other) the kills in order."""
    draw = random.Random(seed)  # noqa: S311 - repeatable on purpose
    left = quotas(kills)
    jobs = [_Job()] * slots
    planned: list[list[Kill]] = [[] for _ in range(slots)]
    for number in range(1, kills + 1):
        slot = (number - 1) % slots
        kill = _next(jobs[slot], left, number, draw)
        left[kill.phase] -= 1
        jobs[slot] = _after(jobs[slot], kill)
        planned[slot].append(kill)
    return planned


def quotas(kills: int) -> Counter[Phase]:
    """How many kills each phase is to get; what rounding leaves goes to the largest shares."""
    total = sum(SHARES.values())
    counts = Counter({phase: kills * share // total for phase, share in SHARES.items()})
    missing = kills - counts.total()
    for phase, _ in Counter(SHARES).most_common(missing):
        counts[phase] += 1
    return counts


def _next(job: _Job, left: Counter[Phase], number: int, draw: random.Random) -> Kill:
    phases = _possible(job)
    wanted = [max(left[phase], 0) for phase in phases]
    weights = wanted if any(wanted) else [1] * len(phases)
    phase = draw.choices(phases, weights)[0]
    barrier = job.restarts >= MOST_RESTARTS and phase in TRAINING
    kinds = dict(_kinds(job, phase, barrier=barrier))
    kind = draw.choices(list(kinds), list(kinds.values()))[0]
    return Kill(
        number=number,
        kind=kind,
        phase=phase,
        delay=round(draw.random(), 3),
        pick=round(draw.random(), 3),
        after_commit=barrier,
    )


def _possible(job: _Job) -> Sequence[Phase]:
    """What comes by itself: all that lies ahead, and while it trains, saves again and again."""
    ahead = WALK[min(job.reached, WALK.index(Phase.STEP)) :]
    return (*ahead, Phase.DELETE) if job.deleting else ahead


def _kinds(job: _Job, phase: Phase, *, barrier: bool) -> Iterator[tuple[Kind, int]]:
    for kind, weight in KINDS[phase].items():
        spent = job.restarts >= MOST_RESTARTS and not barrier
        if not (spent and kind in RESTART):
            yield kind, weight


def _after(job: _Job, kill: Kill) -> _Job:
    restarts = 0 if kill.after_commit else job.restarts
    if kill.kind in MACHINE:
        return _Job(reached=0, deleting=True, restarts=restarts)
    if kill.kind in RESTART:
        booting = kill.phase is Phase.BOOT  # then there is no generation to be restarted
        at = WALK.index(Phase.BOOT if booting else Phase.LOAD)
        return _Job(reached=at, restarts=restarts + (not booting))
    return _Job(reached=_reached(job, kill.phase), restarts=restarts)


def _reached(job: _Job, phase: Phase) -> int:
    """After a kill of the service: by the time it is back, what was being made is made."""
    if phase in (Phase.CREATE, Phase.DELETE):
        return max(job.reached, WALK.index(Phase.BOOT))
    return WALK.index(phase)
