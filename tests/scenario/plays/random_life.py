"""A life in which anything may happen to user, machines and Azure; then calm, and an end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from service.cloud.provider import CloudError, Misconfigured, Throttled
from service.domain.cloud.fleet import scale_set_name
from service.domain.lifecycle.attempt_steps import MAX_TRAINER_ERRORS
from service.domain.states import ATTEMPT_WITH_OUTCOME, JobState
from tests.scenario.job import ScenarioJob
from tests.scenario.machines.machine import Machine
from tests.scenario.plays.play import Play
from tests.world import SPOT
from trainer.contract import NodePhase

ELASTIC = {
    "infrastructure": {"nodes": 2, "elastic": {"min_nodes": 1}},
    "hyperparameters": {"n_epochs": 50, "batch_size": 2},
}
_STORMY_ROUNDS = (5, 25)
_TOTAL_STEPS = (6, 12, 20)
_ROUNDS_TO_CANCEL = 12  # two minutes: members get one to stop


@dataclass(eq=False)
class RandomLife:
    """Draws what happens in each round; no two lives have the same odds."""

    dice: Random
    crashes: int = 0  # of trainers
    rounds: int = 0
    cancelled_for: int = 0  # rounds, in calm
    odds: dict[str, float] = field(init=False)

    def __post_init__(self) -> None:
        """Draw how stormy it is, and how long."""
        rng = self.dice
        self.odds = {name: rng.choice((0.0, 0.02, 0.05, 0.1)) for name in _EVENTS}
        self.stormy_rounds = rng.randrange(*_STORMY_ROUNDS)
        self.total_steps = rng.choice(_TOTAL_STEPS)
        self.has_faulty_wires = rng.random() < 0.5
        self.mortality = rng.choice((0.0, 0.0, 0.02))  # of a supervisor, between two steps
        self.is_elastic = rng.random() < 0.3

    def play(self) -> Play:
        """Return the play of this life."""
        overrides: dict[str, Any] = ELASTIC if self.is_elastic else {}
        return Play(self.turn, end=None, request=lambda _: overrides)

    @property
    def is_calm(self) -> bool:
        """True when no more faults come, and the job must come to its end."""
        return self.rounds > self.stormy_rounds

    def kills_supervisor(self) -> bool:
        """Draw whether a supervisor dies here."""
        return not self.is_calm and self.dice.random() < self.mortality

    async def turn(self, job: ScenarioJob) -> None:
        """Let this round's events happen."""
        self.rounds += 1
        scenario = job.scenario
        scenario.node_wire.is_faulty = scenario.blob_wire.is_faulty = (
            self.has_faulty_wires and not self.is_calm
        )
        for machine in job.machines.values():
            machine.last = self.total_steps
        if self.is_calm:
            await self._calm(job)
            return
        for name, probability in self.odds.items():
            if self.dice.random() < probability:
                await _EVENTS[name](self, job)

    async def _calm(self, job: ScenarioJob) -> None:
        """End every fault; take a pause back."""
        cloud = job.scenario.cloud
        cloud.fail_next.clear()
        cloud.lose_answers = cloud.failing_deletes = 0
        cloud.sold_out.clear()
        cloud.sold_out_late.clear()
        cloud.partial_capacity.clear()
        for machine in job.machines.values():
            machine.silent = False
        if "cancel" in job.done:
            self.cancelled_for += 1
            live = [a.id for a in job.attempts if a.state not in ATTEMPT_WITH_OUTCOME]
            if self.cancelled_for > _ROUNDS_TO_CANCEL and live:
                job.broken.append(f"a cancel is granted soon: {live}")
        elif job.state is JobState.PAUSED or "pause" in job.wished:
            job.wished.discard("pause")
            await job.request_command("resume")

    def broken_by_the_end(self, job: ScenarioJob) -> list[str]:
        """Return what no life may end in."""
        broken = []
        if job.state is JobState.FAILED and self.crashes < MAX_TRAINER_ERRORS:
            broken.append(f"the job failed after {self.crashes} errors of its trainer")
        if job.state is JobState.CANCELLED and "cancel" not in job.wished:
            broken.append("the job is cancelled, and nobody asked for it")
        return broken

    # --- events ---

    def _machine(self, job: ScenarioJob) -> Machine | None:
        present = [m for m in job.machines.values() if not m.is_dismissed]
        return self.dice.choice(present) if present else None

    async def evict(self, job: ScenarioJob) -> None:
        """Let Azure take a machine; perhaps it is listed for a while."""
        if machine := self._machine(job):
            self._take(job, machine, lingers=self.dice.random() < 0.3)

    async def evict_all(self, job: ScenarioJob) -> None:
        """Let Azure take every machine."""
        for machine in list(job.machines.values()):
            self._take(job, machine, lingers=False)

    def _take(self, job: ScenarioJob, machine: Machine, *, lingers: bool) -> None:
        name = scale_set_name(machine.attempt_id)
        for scale_set in job.scenario.cloud.list_existing(()):
            for instance in scale_set.instances if scale_set.name == name else ():
                if instance.vm_id == machine.vm_id:
                    job.scenario.cloud.evict(name, instance.instance_id, lingers=lingers)

    async def announce(self, job: ScenarioJob) -> None:
        """Let Azure announce an eviction."""
        if machine := self._machine(job):
            machine.announce_eviction()

    async def crash_trainer(self, job: ScenarioJob) -> None:
        """Let a trainer fail: out of memory, a bad row, a time-out."""
        machine = self._machine(job)
        if machine and machine.is_training and machine.phase is NodePhase.RUNNING:
            machine.kill_trainer()
            self.crashes += 1

    async def kill_supervisor(self, job: ScenarioJob) -> None:
        """Kill a supervisor; its trainer is killed when it starts again."""
        if machine := self._machine(job):
            machine.kill_supervisor()

    async def lose_disk(self, job: ScenarioJob) -> None:
        """Let Azure reimage a machine."""
        if machine := self._machine(job):
            machine.lose_disk()

    async def cut_off(self, job: ScenarioJob) -> None:
        """Cut a machine off from the service, or join it again."""
        if machine := self._machine(job):
            machine.silent = not machine.silent

    async def change_capacity(self, job: ScenarioJob) -> None:
        """Let Azure have no room, room that is gone later, too little, or enough."""
        cloud = job.scenario.cloud
        cloud.sold_out.clear()
        cloud.sold_out_late.clear()
        cloud.partial_capacity.clear()
        match self.dice.randrange(4):
            case 0:
                cloud.sold_out.add(SPOT)
            case 1:
                cloud.sold_out_late.add(SPOT)
            case 2:
                cloud.partial_capacity[SPOT] = 1
            case _:
                pass

    async def fail_calls(self, job: ScenarioJob) -> None:
        """Let the next calls of Azure fail."""
        faults = (CloudError("?"), Throttled("slowly"), Misconfigured("no role"))
        job.scenario.census.faults.append(job.scenario.world.clock())
        job.scenario.cloud.fail_next += self.dice.choices(faults, k=self.dice.randrange(1, 4))

    async def lose_answer(self, job: ScenarioJob) -> None:
        """Let the answer to a call of Azure get lost."""
        job.scenario.cloud.lose_answers += 1

    async def fail_delete(self, job: ScenarioJob) -> None:
        """Let Azure accept a delete that fails afterwards."""
        job.scenario.cloud.failing_deletes += 1

    async def pause(self, job: ScenarioJob) -> None:
        """Pause it, if it is there."""
        if job.job_id and "cancel" not in job.wished:
            await job.request_command("pause")

    async def resume(self, job: ScenarioJob) -> None:
        """Resume it, if it is paused."""
        if job.state is JobState.PAUSED:
            await job.request_command("resume")

    async def cancel(self, job: ScenarioJob) -> None:
        """Cancel it, in some lives."""
        if job.job_id and self.dice.random() < 0.2:
            await job.request_command("cancel")


_EVENTS: dict[str, Callable[[RandomLife, ScenarioJob], Any]] = {
    event.__name__: event
    for event in (
        RandomLife.evict,
        RandomLife.evict_all,
        RandomLife.announce,
        RandomLife.crash_trainer,
        RandomLife.kill_supervisor,
        RandomLife.lose_disk,
        RandomLife.cut_off,
        RandomLife.change_capacity,
        RandomLife.fail_calls,
        RandomLife.lose_answer,
        RandomLife.fail_delete,
        RandomLife.pause,
        RandomLife.resume,
        RandomLife.cancel,
    )
}
