"""The node's controller: applies reactions of the state machine and owns the current run.

The new state is on disk before its effects are carried out (see node_state.py).
"""

import asyncio
import logging
import shutil
from dataclasses import replace
from pathlib import Path
from typing import assert_never

from trainer.contract import (
    BrokenCheckpoint,
    EvictionNotice,
    Generation,
    Grants,
    Member,
    NodePhase,
    Registered,
    Span,
)
from trainer.process.disk_full import error_with_remedy
from trainer.rundir import RunDir, write_atomically
from trainer.supervisor.control.generation_run import GenerationRun, RunOutcome, RunServices
from trainer.supervisor.control.launch import NodeWorld
from trainer.supervisor.control.node_state import (
    AbandonRun,
    Effect,
    KillTrainer,
    LaunchTrainer,
    LeaveAttempt,
    NodeState,
    Reaction,
    SalvageSaves,
    SaveAndStop,
    on_eviction_notice,
    on_run_ended,
    on_supervisor_restart,
)

RESTARTED = (
    "the supervisor of this node was restarted while the trainer ran, and the trainer ended with "
    "it; what lay whole on the disk was kept"
)

log = logging.getLogger(__name__)


class NodeController:
    """Controls one node. Reactions are applied one after the other, in the event loop."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._state_path = work / "node.json"
        self._run: GenerationRun | None = None
        self._run_task: asyncio.Task[None] | None = None
        # Effects of the restart wait until there are services.
        self.node, self._pending_effects = self._restore_state()
        self.error = RESTARTED if self._pending_effects else ""
        self.broken: BrokenCheckpoint | None = None
        self.out_of_memory = self.non_retryable = False
        self.unhealthy = ""  # why this machine must be replaced; it stays so
        self.notice: EvictionNotice | None = None
        self.leave_requested = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def start(
        self, registration: Registered, services: RunServices, group: asyncio.TaskGroup
    ) -> None:
        """Begin with these services; runs are tasks of the group."""
        self._services, self._group = services, group
        self._waiting_since = services.clock.now()
        self.on_registered(registration)
        effects, self._pending_effects = self._pending_effects, ()
        self.apply((self.node, effects))

    def on_registered(self, registration: Registered) -> None:
        """Take over node id, grants and epoch of a registration."""
        self._node_id = registration.node_id
        self.renew_grants(registration.grants)
        self.apply((replace(self.node, epoch=registration.epoch), ()))

    def renew_grants(self, grants: Grants) -> None:
        """Use these grants from now on."""
        self._grants = grants
        self._services.container.renew(grants.job)
        if self._run is not None:
            self._run.renew_grants(grants)

    def apply(self, reaction: Reaction) -> None:
        """Write the new state to disk, then carry out its effects."""
        node, effects = reaction
        if node != self.node:
            self._services.reports.changed.set()
            log.info("node.changed node=%s", node.to_json())
        if node.generation != self.node.generation:
            self.error, self.broken = "", None
            self.out_of_memory = self.non_retryable = False
        error = self._write_state(node) if node != self.node else ""
        self.node = node
        if node.phase is NodePhase.RUNNING:
            self._idle.clear()
        else:
            self._idle.set()
        for effect in effects:
            log.info("node.effect effect=%s", type(effect).__name__)
            self._execute_effect(effect, error)

    def announce_eviction(self, notice: EvictionNotice, seconds: float) -> None:
        """Report the eviction in ``seconds``, then save and settle."""
        self.notice = notice
        self._services.reports.changed.set()
        if self._run is not None:
            self._run.set_machine_deadline(seconds)
        self.apply(on_eviction_notice(self.node))

    async def wait_until_settled(self) -> None:
        """Return when no trainer runs and nothing waits to be uploaded."""
        await self._idle.wait()

    async def abandon_and_wait(self) -> None:
        """Abandon the current run; return when it is gone."""
        if self._run is not None:
            self._run.abandon()
        if self._run_task is not None:
            await asyncio.gather(self._run_task, return_exceptions=True)

    def _restore_state(self) -> Reaction:
        """Read the state of an earlier supervisor, and react to the restart."""
        try:
            before = NodeState.from_json(self._state_path.read_bytes())
        except FileNotFoundError:
            return NodeState(), ()
        except (OSError, ValueError) as e:
            log.warning("node.forgotten reason=%s", e)
            return NodeState(), ()
        return on_supervisor_restart(before)

    def _write_state(self, node: NodeState) -> str:
        try:
            write_atomically(self._state_path, node.to_json())
        except OSError as e:
            log.warning("node.not_written reason=%s", e)
            return f"{self._state_path.name} could not be written: {error_with_remedy(e)}"
        return ""

    def _execute_effect(self, effect: Effect, error: str) -> None:
        match effect:
            case LaunchTrainer(generation=generation):
                self._launch(generation, error)
            case SaveAndStop():
                self._current_run.save()
            case KillTrainer():
                self._current_run.kill()
            case SalvageSaves():
                self._salvage()
            case AbandonRun():
                self._current_run.abandon()
            case LeaveAttempt():
                self.leave_requested.set()
            case _:
                assert_never(effect)

    def _launch(self, generation: Generation, error: str) -> None:
        member = generation.member(self._node_id)
        if error or member is None:
            reason = error or f"{self._node_id} is no member of the generation"
            self._record_outcome(
                generation.number, RunOutcome(phase=NodePhase.STOPPED, error=reason)
            )
            return
        since, now = self._waiting_since, self._services.clock.now()
        self._services.reports.add_spans(
            [Span(name="wait_for_nodes", started_at=since, ended_at=now)]
        )
        run = self._run = self._create_run(generation, member)
        coroutine = self._run_generation(run, generation, self._run_task)
        self._run_task = self._group.create_task(coroutine)

    def _salvage(self) -> None:
        """Settle what an earlier supervisor's run left; its trainer is gone."""
        number = self.node.generation
        try:
            data = RunDir(self._run_folder(number)).generation.read_bytes()
            generation = Generation.from_json(data)
        except (OSError, ValueError) as e:  # no trainer was started
            log.info("run.nothing_left number=%d reason=%s", number, e)
            self._record_outcome(number, RunOutcome(phase=NodePhase.STOPPED, error=RESTARTED))
            return
        member = generation.member(self._node_id)
        if member is None:
            self._record_outcome(number, RunOutcome(phase=NodePhase.STOPPED, error=RESTARTED))
            return
        self._run = self._create_run(generation, member)
        self._run_task = self._group.create_task(self._salvage_run(self._run, number))

    def _create_run(self, generation: Generation, member: Member) -> GenerationRun:
        root = self._run_folder(generation.number)
        world = NodeWorld(
            generation=generation, member=member, folder=RunDir(root), logs=root / "logs"
        )
        checkpoint = generation.checkpoint
        self._services.reports.begin_run(checkpoint.step if checkpoint else 0)
        return GenerationRun(world, self._grants, self._services)

    def _run_folder(self, number: int) -> Path:
        return self._work / f"gen-{number:04d}"

    async def _salvage_run(self, run: GenerationRun, number: int) -> None:
        outcome = await run.salvage_saves()
        self._record_outcome(number, replace(outcome, error=outcome.error or RESTARTED))

    async def _run_generation(
        self, run: GenerationRun, generation: Generation, before: asyncio.Task[None] | None
    ) -> None:
        if before is not None:
            await before  # it was abandoned
        await asyncio.to_thread(_remove_runs, self._work)
        self._record_outcome(
            generation.number, await self._with_health_check(await run.run_to_end())
        )

    async def _with_health_check(self, outcome: RunOutcome) -> RunOutcome:
        """Check the machine before its trainer is blamed: a broken GPU causes any error."""
        if outcome.phase is NodePhase.FAILED and not self.unhealthy:
            health = self._services.health
            self.unhealthy = outcome.unhealthy or await health.find_faults()
            # While the machine is there.
            self._services.reports.record_gpus(await health.read_gpus())
        return replace(outcome, non_retryable=outcome.non_retryable and not self.unhealthy)

    def _record_outcome(self, number: int, outcome: RunOutcome) -> None:
        log.info("run.ended number=%d how=%s %s", number, outcome.phase, outcome.error)
        self._waiting_since = now = self._services.clock.now()
        self._services.reports.end_all_troubles(now)
        if number == self.node.generation:
            self.error, self.broken = outcome.error, outcome.broken
            self.out_of_memory, self.non_retryable = outcome.out_of_memory, outcome.non_retryable
        self.apply(on_run_ended(self.node, number, outcome.phase))

    @property
    def _current_run(self) -> GenerationRun:
        assert self._run is not None, "only a running node is asked to stop"
        return self._run


def _remove_runs(work: Path) -> None:
    """Delete the folders of earlier generations: they have settled, or never will."""
    for folder in work.glob("gen-*"):
        shutil.rmtree(folder, ignore_errors=True)
