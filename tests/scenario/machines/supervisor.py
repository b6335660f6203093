"""A node's supervisor: the shipped state machine and committer, on a scripted trainer.

The node's state, its stop requests and deadline, and the committer are real. The conversation, one
request in each step, and the launch of a trainer are simulated.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import httpx

from tests.scenario.machines import node_messages
from tests.scenario.machines.job_container import checksum
from tests.scenario.machines.trainer_process import PendingSave, TrainerProcess
from trainer.contract import (
    BrokenCheckpoint,
    Committed,
    Directive,
    Generation,
    HeartbeatAnswer,
    NodePhase,
    Registered,
    StaleGeneration,
)
from trainer.rundir import RankSave, SavedFile
from trainer.supervisor.blob.container import BlobError
from trainer.supervisor.blob.transfer import CorruptError
from trainer.supervisor.clock import NodeClock, NodeLimits, StopDeadline
from trainer.supervisor.control import node_state as rules
from trainer.supervisor.control.stop_requests import StopRequest, StopRequests
from trainer.supervisor.upload.commit import Committer, read_head

if TYPE_CHECKING:
    from tests.scenario.machines.machine import Machine


@dataclass(eq=False)
class Run:
    """One generation on this node, from its launch to the end of its uploads."""

    generation: Generation
    rank: int
    committer: Committer
    stops: StopRequests
    launched: bool = False
    salvaged: bool = False  # an earlier boot's: what it left is committed, no trainer is started
    recalled: bool = False
    model: Committed | None = None
    waiting_since: float | None = None  # for the peers' parts


@dataclass(eq=False)
class Supervisor:
    """One boot of the supervisor on a machine."""

    machine: Machine
    run: Run | None = None
    seat: Registered | None = None
    seq: int = 0
    news: bool = True  # the service has not answered to what is so
    broken: BrokenCheckpoint | None = None
    committed: list[Committed] = field(default_factory=list)  # not reported yet
    effects: deque[rules.Effect] = field(default_factory=deque)
    stop_by: StopDeadline = field(default_factory=StopDeadline)

    def __post_init__(self) -> None:
        """Kill what an earlier boot has left, and read the disk."""
        machine = self.machine
        self.clock = NodeClock(now=self._now, monotonic=self._now)
        machine.kill_trainer()
        self._drop_torn()
        self.react(rules.on_supervisor_restart(machine.disk))
        if machine.noticed:
            self.notice_eviction()

    def react(self, reaction: rules.Reaction) -> None:
        """Write the disk first; the effects are lost if it is killed before them."""
        before, (self.machine.disk, effects) = self.machine.disk, reaction
        self.effects += effects
        after = self.machine.disk
        self.news |= (before.phase, before.generation) != (after.phase, after.generation)

    def notice_eviction(self) -> None:
        """Hear from the metadata service that Azure takes the machine."""
        self.news = True
        self.react(rules.on_eviction_notice(self.machine.disk))

    # --- the conversation ---

    def take_seat(self, answer: httpx.Response | None) -> None:
        """Act on the answer to its registration."""
        if self.machine.boots_never:
            self.machine.silent = answer is not None
        elif answer is not None and answer.status_code == 410:
            self.react(rules.on_attempt_over(self.machine.disk))
        elif answer is not None and answer.status_code == 200:
            self.seat, self.seq, self.news = Registered.from_json(answer.content), 0, True
            self._extend_deadline(self.seat.now, self.seat.stop_by)
            self.react((replace(self.machine.disk, epoch=self.seat.epoch), ()))

    async def register(self) -> None:
        """Register, unless it has a seat."""
        if self.seat is None and not self.machine.silent:
            self.take_seat(
                await self.machine.wire.send_request(**node_messages.registration(self.machine))
            )

    async def poll(self) -> None:
        """Ask for a directive that is newer than the last one, and obey it."""
        if self.stop_by.has_passed(self._now()):
            self.react(rules.on_stop_by_passed(self.machine.disk))
        if self.seat is None or self.machine.silent:
            return
        after = self.machine.disk.directive
        path = f"{node_messages.NODES}/{self.seat.node_id}/directive?after={after}&wait=0"
        path += f"&epoch={self.seat.epoch}"
        answer = await self._ask("GET", path)
        if answer is not None and answer.status_code == 200:
            directive = Directive.from_json(answer.content)
            self._extend_deadline(directive.now, directive.stop_by)
            self.react(rules.on_directive(self.machine.disk, directive))

    async def send_heartbeat(self) -> None:
        """Tell the service what is new; a chatty machine always does."""
        machine = self.machine
        if self.seat is None or machine.silent or not (self.news or machine.chatty):
            return
        self.seq += 1
        beat = node_messages.heartbeat(machine, self)
        self.news = False
        path = f"{node_messages.NODES}/{self.seat.node_id}/heartbeat"
        answer = await self._ask("POST", path, beat.to_json())
        if answer is None or answer.status_code != 200:
            self.news = True
            return
        heartbeat_answer = HeartbeatAnswer.from_json(answer.content)
        self._extend_deadline(heartbeat_answer.now, heartbeat_answer.stop_by)
        machine.unreported = [m for m in machine.unreported if m not in beat.metrics]
        self.committed = [c for c in self.committed if c not in beat.committed]

    async def _ask(self, method: str, path: str, body: str | None = None) -> httpx.Response | None:
        """Send a request as this node; obey a refusal as `conversation.py` does."""
        assert self.seat is not None
        request = node_messages.authorized(self.seat.node_token, body)
        request |= {"method": method, "url": path}
        answer = await self.machine.wire.send_request(**request)
        if answer is None or answer.status_code == 200:
            return answer
        if answer.status_code == 410:
            self.react(rules.on_attempt_over(self.machine.disk))
        elif answer.status_code == 401 or "stale_epoch" in answer.text:
            self.seat = None
        elif answer.status_code == 409:
            self.react(rules.on_stale_generation(self.machine.disk))
        return answer

    def _extend_deadline(self, now: float, stop_by: float) -> None:
        self.stop_by.extend(sent=self._now(), now=now, stop_by=stop_by)

    def _now(self) -> float:
        return self.machine.clock().timestamp()

    # --- the effects of what it heard ---

    async def act(self) -> None:
        """Carry out the effects in their order, and go on with the run."""
        while self.effects:
            self._carry_out(self.effects.popleft())
        if self.run and not self.run.launched and not self.run.salvaged:
            await self._launch(self.run)

    def _carry_out(self, effect: rules.Effect) -> None:
        machine = self.machine
        match effect:
            case rules.LaunchTrainer(generation=generation):
                self.run, machine.trainer = self._run_of(generation), None
            case rules.SalvageSaves():
                self._salvage()
            case rules.LeaveAttempt():
                self._request(StopRequest.ABANDON)
                machine.is_dismissed = True
            case rules.AbandonRun():
                self._request(StopRequest.ABANDON)
            case rules.KillTrainer():
                self._request(StopRequest.KILL)
            case rules.SaveAndStop():
                self._request(StopRequest.SAVE)

    def _request(self, request: StopRequest) -> None:
        """Ask the run to end; only a request to save lets the trainer live."""
        if self.run is not None:
            self.run.stops.request(request)
        if request is StopRequest.ABANDON:
            self.machine.outbox.clear()
        if request is not StopRequest.SAVE:
            self.machine.kill_trainer()
        elif self.machine.trainer:
            self.machine.trainer.stop = True

    def _run_of(self, generation: Generation) -> Run:
        assert self.seat is not None
        member = generation.member(self.seat.node_id)
        assert member, "only members are told to start"
        stops = StopRequests(NodeLimits(), self.clock)
        committer = Committer(
            self.machine.container,
            generation,
            self.clock,
            lambda step: [m for m in self.machine.unreported if m.step <= step],
        )
        return Run(generation, member.node_rank, committer, stops)

    def _salvage(self) -> None:
        """Settle what the last boot's trainer has left, if it had come to start one."""
        trainer, disk = self.machine.trainer, self.machine.disk
        if trainer is None or trainer.generation.number != disk.generation:
            self.react(rules.on_run_ended(disk, disk.generation, NodePhase.STOPPED))
            return
        stops = StopRequests(NodeLimits(), self.clock)
        committer = Committer(self.machine.container, trainer.generation, self.clock)
        self.run = Run(trainer.generation, trainer.rank, committer, stops, salvaged=True)
        stops.request(StopRequest.SAVE)

    async def _launch(self, run: Run) -> None:
        """Claim the generation, load its checkpoint, and start the trainer."""
        if run.stops.strongest is not StopRequest.NONE:
            self._end(run, NodePhase.STOPPED)
            return
        head, _ = await read_head(self.machine.container)
        self.machine.watch.claim(run.generation, head)
        if head.generation != run.generation.number:
            self._end(run, NodePhase.STOPPED)
            return
        self.broken = await self._missing_of(run.generation.checkpoint)
        if self.broken:
            self._end(run, NodePhase.STOPPED)
            return
        trainer = TrainerProcess(self.machine.vm_id, run.generation, run.rank, self.machine.outbox)
        run.launched, self.machine.trainer = True, trainer
        self.machine.watch.start(self.machine.attempt_id, trainer)

    async def _missing_of(self, entry: Committed | None) -> BrokenCheckpoint | None:
        """Return what of the checkpoint's files is not as its manifest says."""
        if entry is None:
            return None
        files = await self.machine.watch.damaged(self.machine.job_id, entry)
        return BrokenCheckpoint(path=entry.path, file=files[0], reason="is gone") if files else None

    # --- what the trainer saves ---

    async def write_saves(self) -> None:
        """Let the trainer write what it has planned."""
        trainer = self.machine.trainer
        while trainer and trainer.do_next():
            self.news = True

    async def upload(self) -> None:
        """Upload the saves that lie whole; rank 0 then waits for the parts of its peers."""
        run = self.run
        if run is None or not (run.launched or run.salvaged):
            return
        for save in [s for s in self.machine.outbox.values() if s.is_complete and not s.sent]:
            record = await self._send(save)
            if run.rank == 0:
                run.committer.expect_commit(record)
            else:
                self.machine.outbox.pop(save.path, None)

    async def _send(self, save: PendingSave) -> RankSave:
        container = self.machine.container
        for name, data in save.files.items():
            await container.write_new(f"{save.path}/{name}", data)
        record = RankSave(
            path=save.path,
            rank=save.rank,
            writers=save.writers,
            step=save.step,
            consumed_samples=save.step,
            world_size=save.generation.world_size,
            generation=save.generation.number,
            kind=save.kind,
            saved_at=0.0,
            files=tuple(
                SavedFile(name=name, size=len(data), crc64nvme=checksum(data))
                for name, data in save.files.items()
            ),
            parameters_sha256="1" * 64 if save.kind == "final" else "",
        )
        await container.write_new(f"{save.path}/{record.name}", record.to_json().encode())
        save.sent = True
        return record

    async def commit(self) -> None:
        """Commit what is complete in Blob, unless a newer generation has taken HEAD."""
        run = self.run
        if run is None or run.rank or not (run.launched or run.salvaged):
            return
        try:
            if run.salvaged and not run.recalled:
                run.model, run.recalled = await run.committer.expect_earlier_saves(), True
            for entry in await run.committer.commit_complete():
                self.committed.append(entry)
                self.machine.outbox.pop(entry.path, None)
                run.model = entry if entry.kind == "final" else run.model
            await run.committer.delete_dropped()
        except StaleGeneration:
            self._request(StopRequest.ABANDON)
        except (BlobError, CorruptError):
            return

    async def settle(self) -> None:
        """End the run once its trainer is gone, and its saves are committed or given up."""
        run, trainer = self.run, self.machine.trainer
        if run is None or trainer is None or not (run.launched or run.salvaged):
            return
        if run.stops.must_be_killed:
            trainer.die()
        if trainer.alive:
            return
        self._drop_torn()
        if not run.stops.trainer_exited.is_set():
            run.stops.record_trainer_end(ended_well=trainer.how is not NodePhase.FAILED)
        if run.waiting_since is None:
            run.waiting_since = self._now()
        idle = run.rank != 0 or run.committer.is_idle
        is_time_over = run.stops.is_upload_time_over or run.stops.is_peer_time_over(
            run.waiting_since
        )
        if run.stops.strongest is StopRequest.ABANDON or is_time_over or (idle and self._all_sent):
            self._end(run, self._how_it_ended(run, trainer))

    @property
    def _all_sent(self) -> bool:
        return all(save.sent for save in self.machine.outbox.values())

    def _how_it_ended(self, run: Run, trainer: TrainerProcess) -> NodePhase:
        outcome = trainer.how or NodePhase.FAILED
        if run.stops.strongest is StopRequest.ABANDON:
            return NodePhase.STOPPED
        if outcome is NodePhase.FINISHED and run.rank == 0 and run.model is None:
            return NodePhase.STOPPED
        return NodePhase.STOPPED if run.salvaged and outcome is not NodePhase.FINISHED else outcome

    def _end(self, run: Run, outcome: NodePhase) -> None:
        self.machine.outbox.clear()
        self.react(rules.on_run_ended(self.machine.disk, run.generation.number, outcome))
        self.run = None

    def _drop_torn(self) -> None:
        outbox = self.machine.outbox
        for path in [path for path, save in outbox.items() if not save.is_complete]:
            del outbox[path]
