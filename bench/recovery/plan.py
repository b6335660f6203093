"""Plan of the kills, a pure function of their number and the seed.

A job passes through create, boot, load, step, save and commit. A kill of its machine returns it to
create, and leaves an old scale set to delete. The plan tracks the state after each kill and
chooses the next kill among the phases that follow, so that one recovery serves several kills.

A job fails by design after three trainer kills in a row without a checkpoint between them. The
plan avoids this: after two restarts in a row the next kill first waits for a new checkpoint.
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    """Phase of a job, as seen from outside."""

    CREATE = "create"  # the scale set is requested or being created
    BOOT = "boot"  # machines run without a generation
    LOAD = "load"  # a generation is open and its first step unfinished
    STEP = "step"  # it trains without a pending save
    SAVE = "save"  # a save is being written to the machine's disk
    COMMIT = "commit"  # a complete save is being uploaded and committed
    DELETE = "delete"  # a scale set is being deleted


class KillKind(StrEnum):
    """What is killed."""

    SERVICE = "service"
    SUPERVISOR = "supervisor"
    TRAINER = "trainer"  # one rank
    LAUNCHER = "launcher"  # torchrun, whose workers outlive it
    VM = "vm"  # without notice
    EVICT = "evict"  # with Azure's notice; Azure ML gives none, see PREEMPT
    PREEMPT = "preempt"  # Azure ML takes one node; its job restarts or ends


WALK = (Phase.CREATE, Phase.BOOT, Phase.LOAD, Phase.STEP, Phase.SAVE, Phase.COMMIT)
TRAINING = frozenset({Phase.STEP, Phase.SAVE, Phase.COMMIT})
MACHINE = frozenset({KillKind.VM, KillKind.EVICT, KillKind.PREEMPT})
RESTART = frozenset({KillKind.SUPERVISOR, KillKind.TRAINER, KillKind.LAUNCHER})
TRAINERS = frozenset({KillKind.TRAINER, KillKind.LAUNCHER})
MOST_RESTARTS = 2  # restarts in a row without a checkpoint between

# Share of each phase in percent, and the weight of each kind within a phase.
SHARES = {
    Phase.CREATE: 11,
    Phase.BOOT: 14,
    Phase.LOAD: 15,
    Phase.STEP: 20,
    Phase.SAVE: 14,
    Phase.COMMIT: 15,
    Phase.DELETE: 11,
}
KINDS: dict[Phase, dict[KillKind, int]] = {
    Phase.CREATE: {KillKind.SERVICE: 1},
    Phase.BOOT: {KillKind.SERVICE: 3, KillKind.SUPERVISOR: 3, KillKind.VM: 3, KillKind.EVICT: 3},
    Phase.LOAD: {
        KillKind.SERVICE: 2,
        KillKind.SUPERVISOR: 2,
        KillKind.TRAINER: 2,
        KillKind.LAUNCHER: 1,
        KillKind.VM: 2,
        KillKind.EVICT: 3,
    },
    **{
        phase: {
            KillKind.SERVICE: 3,
            KillKind.SUPERVISOR: 3,
            KillKind.TRAINER: 3,
            KillKind.LAUNCHER: 2,
            KillKind.VM: 5,
            KillKind.EVICT: 8,
        }
        for phase in (Phase.STEP, Phase.SAVE, Phase.COMMIT)
    },
    Phase.DELETE: {KillKind.SERVICE: 1},
}


@dataclass(frozen=True, kw_only=True)
class Kill:
    """One planned kill: wait for the phase and for ``delay`` of its usual length, then kill."""

    number: int
    kind: KillKind
    phase: Phase
    delay: float  # 0 to 1
    pick: float  # 0 to 1, selects one of several machines
    after_commit: bool  # first wait for a newer checkpoint than at the last kill


@dataclass(frozen=True)
class _Job:
    """State of a job after its last planned kill."""

    reached: int = 0  # index in WALK of the earliest phase for the next kill
    deleting: bool = False  # whether an old scale set will be deleted
    restarts: int = 0  # restarts in a row, possibly without a checkpoint


def plan(kills: int, seed: int, slots: int) -> list[list[Kill]]:
    """Return the kills of each slot in order; a slot runs one job after another."""
    rng = random.Random(seed)  # noqa: S311 - repeatable on purpose
    remaining = quotas(kills)
    jobs = [_Job()] * slots
    planned: list[list[Kill]] = [[] for _ in range(slots)]
    for number in range(1, kills + 1):
        slot = (number - 1) % slots
        kill = _next(jobs[slot], remaining, number, rng)
        remaining[kill.phase] -= 1
        jobs[slot] = _after(jobs[slot], kill)
        planned[slot].append(kill)
    return planned


def quotas(kills: int) -> Counter[Phase]:
    """Return the number of kills for each phase; the remainder goes to the largest shares."""
    total = sum(SHARES.values())
    counts = Counter({phase: kills * share // total for phase, share in SHARES.items()})
    missing = kills - counts.total()
    for phase, _ in Counter(SHARES).most_common(missing):
        counts[phase] += 1
    return counts


def _next(job: _Job, remaining: Counter[Phase], number: int, rng: random.Random) -> Kill:
    phases = _possible(job)
    quotas_left = [max(remaining[phase], 0) for phase in phases]
    weights = quotas_left if any(quotas_left) else [1] * len(phases)
    phase = rng.choices(phases, weights)[0]
    barrier = job.restarts >= MOST_RESTARTS and phase in TRAINING
    kinds = dict(_kinds(job, phase, barrier=barrier))
    kind = rng.choices(list(kinds), list(kinds.values()))[0]
    return Kill(
        number=number,
        kind=kind,
        phase=phase,
        delay=round(rng.random(), 3),
        pick=round(rng.random(), 3),
        after_commit=barrier,
    )


def _possible(job: _Job) -> Sequence[Phase]:
    """Return the phases that the job reaches without another kill."""
    upcoming = WALK[min(job.reached, WALK.index(Phase.STEP)) :]
    return (*upcoming, Phase.DELETE) if job.deleting else upcoming


def _kinds(job: _Job, phase: Phase, *, barrier: bool) -> Iterator[tuple[KillKind, int]]:
    for kind, weight in KINDS[phase].items():
        is_exhausted = job.restarts >= MOST_RESTARTS and not barrier
        if not (is_exhausted and kind in RESTART):
            yield kind, weight


def _after(job: _Job, kill: Kill) -> _Job:
    restarts = 0 if kill.after_commit else job.restarts
    if kill.kind in MACHINE:
        return _Job(reached=0, deleting=True, restarts=restarts)
    if kill.kind in RESTART:
        during_boot = kill.phase is Phase.BOOT  # no generation exists yet, so this is no restart
        at = WALK.index(Phase.BOOT if during_boot else Phase.LOAD)
        return _Job(reached=at, restarts=restarts + (not during_boot))
    return _Job(reached=_reached(job, kill.phase), restarts=restarts)


def _reached(job: _Job, phase: Phase) -> int:
    """Return the earliest next phase after a kill of the service.

    Creations and deletions finish before the service is back.
    """
    if phase in (Phase.CREATE, Phase.DELETE):
        return max(job.reached, WALK.index(Phase.BOOT))
    return WALK.index(phase)
