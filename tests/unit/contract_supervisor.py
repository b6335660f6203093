"""The simulated supervisor: the real node machine, with an uploader and rank 0's committer.

Every ``yield`` is a place where the process may be killed or others may go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

from tests.unit.contract_blob import asked
from tests.unit.contract_vm import Save, Trainer, Vm
from trainer.contract import (
    HEAD,
    MANIFEST,
    Committed,
    Directive,
    EvictionNotice,
    FileEntry,
    Generation,
    Heartbeat,
    HeartbeatAnswer,
    Manifest,
    NodePhase,
    Registration,
    StaleGeneration,
)
from trainer.supervisor.control.node_state import (
    AbandonRun,
    Effect,
    KillTrainer,
    LaunchTrainer,
    LeaveAttempt,
    Reaction,
    SalvageSaves,
    on_attempt_over,
    on_eviction_notice,
    on_run_ended,
    on_stale_generation,
    on_stop_by_passed,
    on_supervisor_restart,
)

if TYPE_CHECKING:
    from tests.unit.contract_world import World

PATIENCE = 6  # turns until an answer of Blob is given up


class Refusal(StrEnum):
    """The service's answers that are not 200."""

    STALE_EPOCH = "409 stale_epoch"
    STALE_GENERATION = "409 stale_generation"
    GONE = "410"


@dataclass(frozen=True)
class Welcome:
    """As much of Registered as matters here."""

    node_id: str
    epoch: int


@dataclass(eq=False)
class Run:
    """The launch of one generation, from its row to its end."""

    row: Generation
    stage: int = 0  # 0 HEAD unread, 1 nothing loaded, 2 not started, 3 started
    unwanted: bool = False
    abandoned: bool = False


class Supervisor:
    """One boot of the supervisor on a VM."""

    def __init__(self, world: World, vm: Vm) -> None:
        self.world, self.vm = world, vm
        vm.boots += 1
        self.boot_id = f"{vm.vm_id}-boot-{vm.boots}"
        self.alive = True
        self.node = vm.disk
        self.node_id = ""
        self.epoch = self.seq = 0
        self.ready = False
        self.run: Run | None = None
        self.effects: deque[Effect] = deque()
        self.tasks = (self._work(), self._upload())

    def advance(self, task: int) -> None:
        """Go on to the next place where it may be killed."""
        next(self.tasks[task])

    # --- talking to the service ---

    def send(self) -> None:
        """Send one message that is due."""
        service, wire = self.world.service, self.world.wire
        if not self.ready:
            return
        if not self.epoch:
            message = self._registration()
            wire.send(self, lambda: service.register(message), self.hear)
        elif self.world.rng.random() < 0.5:
            heartbeat, me = self._heartbeat(), self.node_id
            wire.send(self, lambda: service.heartbeat(me, heartbeat), self.hear)
        else:
            after, me = self.node.directive, self.node_id
            wire.send(self, lambda: service.poll(me, after), self.hear)

    def hear(self, answer: Welcome | HeartbeatAnswer | Directive | Refusal) -> None:
        """React to an answer, however late; harsher than HTTP, where late ones are dropped."""
        match answer:
            case Welcome():
                self.node_id, newer = answer.node_id, max(self.epoch, answer.epoch)
                self.seq = self.seq if newer == self.epoch else 0
                self.epoch = newer
                self.react((replace(self.node, epoch=newer), ()))
            case Directive():
                self.react(self.world.rules.directed(self.node, answer))
            case Refusal.GONE:
                self.react(on_attempt_over(self.node))
            case Refusal.STALE_EPOCH:
                self.epoch = 0  # register again; the trainer goes on
            case Refusal.STALE_GENERATION:
                self.react(on_stale_generation(self.node))
            case HeartbeatAnswer():
                pass

    def notice(self) -> None:
        """The metadata service announces the eviction."""
        self.react(on_eviction_notice(self.node))

    def overdue(self) -> None:
        """``stop_by`` passes."""
        self.react(on_stop_by_passed(self.node))

    def react(self, reaction: Reaction) -> None:
        """Disk first, effects later: they are lost when it is killed in between."""
        self.node, effects = reaction
        self.vm.disk = self.node
        self.effects += effects

    def _registration(self) -> Registration:
        vm = self.vm
        return Registration(
            protocol=1,
            attempt_id=vm.attempt_id,
            vm_id=vm.vm_id,
            boot_id=self.boot_id,
            name=vm.vm_id,
            address=vm.vm_id,
            gpus=1,
        )

    def _heartbeat(self) -> Heartbeat:
        self.seq += 1
        notice = EvictionNotice(event_id="", not_before=0.0, seen_at=0.0)
        return Heartbeat(
            epoch=self.epoch,
            seq=self.seq,
            phase=self.node.phase,
            generation=self.node.generation,
            step=self.vm.trainer.step if self.vm.trainer else 0,
            free_port=1024 + self.seq,
            eviction=notice if self.node.evicting else None,
        )

    # --- carrying out effects ---

    def _work(self) -> Iterator[None]:
        self.vm.kill_trainer()
        self._drop_torn()
        yield
        self.react(on_supervisor_restart(self.node))
        yield
        self.ready = True
        while True:
            if self.effects:
                self._carry_out(self.effects.popleft())
            elif self.run:
                self._go_on(self.run)
            yield

    def _carry_out(self, effect: Effect) -> None:
        if isinstance(effect, LaunchTrainer):
            self.run, self.vm.trainer = Run(effect.generation), None
            return
        if isinstance(effect, SalvageSaves):
            self._salvage()
            return
        if isinstance(effect, LeaveAttempt):
            self.vm.left = True
            self.vm.kill_supervisor()
        if self.run is None:
            return
        self.run.unwanted = True
        if isinstance(effect, KillTrainer | AbandonRun | LeaveAttempt):
            self.vm.kill_trainer()
        elif self.vm.trainer:
            self.vm.trainer.stop = True
        if isinstance(effect, AbandonRun | LeaveAttempt):
            self.run.abandoned = True
            self.vm.outbox.clear()

    def _salvage(self) -> None:
        """Settle what the last boot's trainer left, if it came to start one."""
        trainer = self.vm.trainer
        if trainer and trainer.row.number == self.node.generation:
            self.run = Run(trainer.row, stage=3, unwanted=True)
        else:
            self.react(on_run_ended(self.node, self.node.generation, NodePhase.STOPPED))

    def _go_on(self, run: Run) -> None:
        world, trainer = self.world, self.vm.trainer
        if trainer and trainer.alive:
            self._watch_the_time(run, trainer)
        elif trainer:
            self._settle(run, trainer)
        elif run.unwanted or self._overtaken_before_it_began(run):
            self._end(run, NodePhase.STOPPED)
        elif run.stage == 0:
            run.stage = 1
        elif run.stage == 1:
            world.judge.loaded(run.row, world.blob)
            run.stage = 2
        else:
            world.start_trainer(self.vm, run.row, self.node_id)

    def _overtaken_before_it_began(self, run: Run) -> bool:
        return run.stage == 0 and self.world.blob.head()[1].generation != run.row.number

    def _watch_the_time(self, run: Run, trainer: Trainer) -> None:
        """A trainer that waits for a rank that is gone never comes to save: kill it in the end."""
        rules = self.world.rules
        if run.unwanted and rules.saves_in_time and self.world.rng.random() < 0.03:
            trainer.die()

    def _settle(self, run: Run, trainer: Trainer) -> None:
        """Rank 0 has FINISHED only if HEAD names the model; the others need not look."""
        self._drop_torn()
        if any(s.row.number == run.row.number for s in self.vm.outbox.values()):
            return
        how = NodePhase.STOPPED if run.abandoned else trainer.how or NodePhase.FAILED
        last = trainer.rank == 0 and how is NodePhase.FINISHED
        if last and self.world.blob.head()[1].model is None:
            how = NodePhase.STOPPED
        self._end(run, how)

    def _end(self, run: Run, how: NodePhase) -> None:
        self.react(on_run_ended(self.node, run.row.number, how))
        self.run = self.vm.trainer = None

    def _drop_torn(self) -> None:
        for path in [p for p, s in self.vm.outbox.items() if not s.whole]:
            del self.vm.outbox[path]

    # --- uploading and committing ---

    def _upload(self) -> Iterator[None]:
        while True:
            save = next((s for s in self.vm.outbox.values() if s.whole), None)
            if save and self.ready:
                yield from self._push(save)
                self.vm.outbox.pop(save.path, None)
            yield

    def _wanted(self, save: Save) -> bool:
        return save.path in self.vm.outbox

    def _push(self, save: Save) -> Iterator[None]:
        shard = f"shard-{save.rank}"
        yield from self._ensure(save, f"{save.path}/{shard}", save.content)
        if (there := self.world.blob.read(f"{save.path}/{shard}")) is None:
            return  # unwanted, or collected already because HEAD has moved on
        entry = FileEntry(name=shard, size=1, etag=there[0], crc64nvme="0" * 16)
        yield from self._ensure(save, f"{save.path}/rank-{save.rank:05d}.json", entry)
        if save.rank == 0:
            yield from self._commit(save)

    def _ensure(self, save: Save, name: str, value: object) -> Iterator[None]:
        """Put a file once, however often that takes; 412 says that it is there."""
        put = partial(self.world.blob.put, name, value, if_none_match=self.world.rules.write_once)
        while self._wanted(save):
            if (yield from asked(self.world.wire, self, put, PATIENCE)):
                return

    def _commit(self, save: Save) -> Iterator[None]:
        blob = self.world.blob
        records = [f"{save.path}/rank-{r:05d}.json" for r in range(save.writers)]
        while not all(blob.read(r) for r in records):
            if not self._wanted(save) or self._hopeless(save):
                return
            yield
        files = tuple(there[1] for r in records if (there := blob.read(r)))
        manifest = _manifest(save, files)
        yield from self._ensure(save, f"{save.path}/{MANIFEST}", manifest)
        if self._wanted(save):
            yield from self._swap(save, _committed(save))

    def _swap(self, save: Save, entry: Committed) -> Iterator[None]:
        """Compare-and-swap HEAD until it names the entry or belongs to another generation."""
        blob, rules = self.world.blob, self.world.rules
        dropped: list[str] = []
        while self._wanted(save):
            etag, head = blob.head()
            yield
            named = [c.path for c in (*head.checkpoints, head.model) if c]
            if entry.path in named:
                break
            try:
                new = rules.admitted(head, entry)
            except StaleGeneration:
                self._overtaken(save)
                return
            dropped = [c.path for c in head.checkpoints if c not in new.checkpoints]
            put = partial(blob.put, HEAD, new, if_match=etag if rules.compare_head else "")
            yield from asked(self.world.wire, self, put, PATIENCE)
        yield
        still = {c.path for c in blob.head()[1].checkpoints}
        for path in dropped:
            if path not in still:
                blob.delete_folder(path)

    def _overtaken(self, save: Save) -> None:
        """HEAD belongs to a newer generation: stop, and commit nothing."""
        if self.run and self.run.row.number == save.row.number:
            self._carry_out(AbandonRun())

    def _hopeless(self, save: Save) -> bool:
        """True when the other ranks' parts will not come any more, as far as one can guess."""
        over = self.run is None or self.run.row.number != save.row.number
        ending = over or self.run is None or self.run.unwanted
        return ending and self.world.rng.random() < (0.3 if over else 0.05)


def _manifest(save: Save, files: tuple[FileEntry, ...]) -> Manifest:
    return Manifest(
        step=save.step,
        consumed_samples=save.step,
        world_size=save.row.world_size,
        generation=save.row.number,
        kind=save.kind,
        files=files,
        run_spec_sha256="",
        saved_at=0.0,
    )


def _committed(save: Save) -> Committed:
    return Committed(
        path=save.path,
        step=save.step,
        consumed_samples=save.step,
        world_size=save.row.world_size,
        generation=save.row.number,
        kind=save.kind,
        size=1,
        manifest_sha256="",
        committed_at=0.0,
    )
