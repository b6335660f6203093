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
from trainer.rundir import RunDir, write_whole
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
        self._memory = work / "node.json"
        self._run: GenerationRun | None = None
        self._living: asyncio.Task[None] | None = None
        self.node, self._owed = self._remember()  # effects of the restart, until there are tools
        self.error = RESTARTED if self._owed else ""
        self.broken: BrokenCheckpoint | None = None
        self.out_of_memory = self.non_retryable = False
        self.unhealthy = ""  # why this machine must be replaced; it stays so
        self.notice: EvictionNotice | None = None
        self.left = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def start(self, registration: Registered, tools: RunServices, group: asyncio.TaskGroup) -> None:
        """Begin with these services; runs are tasks of the group."""
        self._tools, self._group = tools, group
        self._waiting_since = tools.clock.now()
        self.on_registered(registration)
        effects, self._owed = self._owed, ()
        self.apply((self.node, effects))

    def on_registered(self, registration: Registered) -> None:
        """Take over node id, grants and epoch of a registration."""
        self._node_id = registration.node_id
        self.renew_grants(registration.grants)
        self.apply((replace(self.node, epoch=registration.epoch), ()))

    def renew_grants(self, grants: Grants) -> None:
        """Use these grants from now on."""
        self._grants = grants
        self._tools.container.renew(grants.job)
        if self._run is not None:
            self._run.renew_grants(grants)

    def apply(self, reaction: Reaction) -> None:
        """Write the new state to disk, then carry out its effects."""
        node, effects = reaction
        if node != self.node:
            self._tools.reports.changed.set()
            log.info("node.changed node=%s", node.to_json())
        if node.generation != self.node.generation:
            self.error, self.broken = "", None
            self.out_of_memory = self.non_retryable = False
        error = self._write(node) if node != self.node else ""
        self.node = node
        if node.phase is NodePhase.RUNNING:
            self._idle.clear()
        else:
            self._idle.set()
        for effect in effects:
            log.info("node.effect effect=%s", type(effect).__name__)
            self._carry_out(effect, error)

    def announce_eviction(self, notice: EvictionNotice, seconds: float) -> None:
        """Report the eviction in ``seconds``, then save and settle."""
        self.notice = notice
        self._tools.reports.changed.set()
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
        if self._living is not None:
            await asyncio.gather(self._living, return_exceptions=True)

    def _remember(self) -> Reaction:
        """Read the state of an earlier supervisor, and react to the restart."""
        try:
            before = NodeState.from_json(self._memory.read_bytes())
        except FileNotFoundError:
            return NodeState(), ()
        except (OSError, ValueError) as e:
            log.warning("node.forgotten reason=%s", e)
            return NodeState(), ()
        return on_supervisor_restart(before)

    def _write(self, node: NodeState) -> str:
        try:
            write_whole(self._memory, node.to_json())
        except OSError as e:
            log.warning("node.not_written reason=%s", e)
            return f"{self._memory.name} could not be written: {error_with_remedy(e)}"
        return ""

    def _carry_out(self, effect: Effect, error: str) -> None:
        match effect:
            case LaunchTrainer(generation=generation):
                self._launch(generation, error)
            case SaveAndStop():
                self._present.save()
            case KillTrainer():
                self._present.kill()
            case SalvageSaves():
                self._salvage()
            case AbandonRun():
                self._present.abandon()
            case LeaveAttempt():
                self.left.set()
            case _:
                assert_never(effect)

    def _launch(self, generation: Generation, error: str) -> None:
        member = generation.member(self._node_id)
        if error or member is None:
            reason = error or f"{self._node_id} is no member of the generation"
            self._ended(generation.number, RunOutcome(how=NodePhase.STOPPED, error=reason))
            return
        since, now = self._waiting_since, self._tools.clock.now()
        self._tools.reports.add_spans([Span(name="wait_for_nodes", started_at=since, ended_at=now)])
        run = self._run = self._begin(generation, member)
        coroutine = self._live(run, generation, self._living)
        self._living = self._group.create_task(coroutine)

    def _salvage(self) -> None:
        """Settle what an earlier supervisor's run left; its trainer is gone."""
        number = self.node.generation
        try:
            data = RunDir(self._root(number)).generation.read_bytes()
            generation = Generation.from_json(data)
        except (OSError, ValueError) as e:  # no trainer was started
            log.info("run.nothing_left number=%d reason=%s", number, e)
            self._ended(number, RunOutcome(how=NodePhase.STOPPED, error=RESTARTED))
            return
        member = generation.member(self._node_id)
        if member is None:
            self._ended(number, RunOutcome(how=NodePhase.STOPPED, error=RESTARTED))
            return
        self._run = self._begin(generation, member)
        self._living = self._group.create_task(self._settle(self._run, number))

    def _begin(self, generation: Generation, member: Member) -> GenerationRun:
        root = self._root(generation.number)
        world = NodeWorld(
            generation=generation, member=member, folder=RunDir(root), logs=root / "logs"
        )
        checkpoint = generation.checkpoint
        self._tools.reports.begin_run(checkpoint.step if checkpoint else 0)
        return GenerationRun(world, self._grants, self._tools)

    def _root(self, number: int) -> Path:
        return self._work / f"gen-{number:04d}"

    async def _settle(self, run: GenerationRun, number: int) -> None:
        ending = await run.salvage_saves()
        self._ended(number, replace(ending, error=ending.error or RESTARTED))

    async def _live(
        self, run: GenerationRun, generation: Generation, before: asyncio.Task[None] | None
    ) -> None:
        if before is not None:
            await before  # it was abandoned
        await asyncio.to_thread(_remove_runs, self._work)
        self._ended(generation.number, await self._examined(await run.run_to_end()))

    async def _examined(self, ending: RunOutcome) -> RunOutcome:
        """Check the machine before its trainer is blamed: a broken GPU causes any error."""
        if ending.how is NodePhase.FAILED and not self.unhealthy:
            health = self._tools.health
            self.unhealthy = ending.unhealthy or await health.find_faults()
            self._tools.reports.record_gpus(await health.read_gpus())  # while the machine is there
        return replace(ending, non_retryable=ending.non_retryable and not self.unhealthy)

    def _ended(self, number: int, ending: RunOutcome) -> None:
        log.info("run.ended number=%d how=%s %s", number, ending.how, ending.error)
        self._waiting_since = now = self._tools.clock.now()
        self._tools.reports.end_all_troubles(now)
        if number == self.node.generation:
            self.error, self.broken = ending.error, ending.broken
            self.out_of_memory, self.non_retryable = ending.out_of_memory, ending.non_retryable
        self.apply(on_run_ended(self.node, number, ending.how))

    @property
    def _present(self) -> GenerationRun:
        assert self._run is not None, "only a running node is asked to stop"
        return self._run


def _remove_runs(work: Path) -> None:
    """Delete the folders of earlier generations: they have settled, or never will."""
    for folder in work.glob("gen-*"):
        shutil.rmtree(folder, ignore_errors=True)
