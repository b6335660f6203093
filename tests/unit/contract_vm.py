"""A simulated VM: its disk, its trainer, and the saves that wait there for upload."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainer.contract import Generation, NodePhase, checkpoint_path, model_path
from trainer.supervisor.control.node_state import NodeState

if TYPE_CHECKING:
    from tests.unit.contract_supervisor import Supervisor


@dataclass(eq=False)
class Save:
    """One rank's part of a save in the outbox; whole once its record is written."""

    path: str
    row: Generation
    rank: int
    writers: int
    step: int
    kind: str
    whole: bool = False

    @property
    def content(self) -> tuple[int, int, int]:
        """What the shard says: enough to tell that two shards are not of one save."""
        return (self.row.number, self.step, self.rank)


class Trainer:
    """The process group of one node, as one process. It outlives a killed supervisor."""

    def __init__(self, vm: Vm, row: Generation, rank: int) -> None:
        self.vm_id = vm.vm_id
        self.vm = vm
        self.row = row
        self.rank = rank
        self.step = row.checkpoint.step if row.checkpoint else 0
        self.saved_at = -1
        self.stop = False
        self.alive = True
        self.how: NodePhase | None = None
        self.todo: deque[Save | NodePhase] = deque()

    @property
    def at_boundary(self) -> bool:
        """Between two steps, with nothing else to do."""
        return self.alive and self.how is None and not self.todo

    def save(self, kind: str) -> None:
        """Plan a save of the state between two steps; a step is saved once per generation."""
        if kind != "final" and self.saved_at == self.step:
            return
        self.saved_at = self.step
        nonce = f"g{self.row.number}"
        if kind == "final":
            save = Save(model_path(self.step, nonce), self.row, 0, 1, self.step, kind)
        else:
            path, writers = checkpoint_path(self.step, nonce), self.row.world_size
            save = Save(path, self.row, self.rank, writers, self.step, kind)
        self.todo += [save, save]  # once for the data, once for the record

    def end(self, how: NodePhase) -> None:
        """Plan to end after what is planned already."""
        self.todo.append(how)

    def act(self) -> None:
        """Do one planned thing."""
        if not self.alive or not self.todo:
            return
        planned = self.todo.popleft()
        if isinstance(planned, NodePhase):
            self.how, self.alive = planned, False
        elif planned.path in self.vm.outbox:
            planned.whole = True
        else:
            self.vm.outbox[planned.path] = planned

    def die(self, how: NodePhase = NodePhase.FAILED) -> None:
        """End at once, in the middle of whatever it is."""
        if self.alive:
            self.alive, self.how = False, how


@dataclass(eq=False)
class Vm:
    """One instance. ``disk`` and ``outbox`` survive the supervisor, not the VM."""

    vm_id: str
    attempt_id: str
    boots: int = 0
    alive: bool = True
    doomed: bool = False  # Azure has announced its eviction
    left: bool = False  # it was told 410
    listed: bool = False  # what the cloud's instance list says, late
    disk: NodeState = field(default_factory=NodeState)
    outbox: dict[str, Save] = field(default_factory=dict)
    supervisor: Supervisor | None = None
    trainer: Trainer | None = None

    def send(self) -> None:
        """The supervisor, if there is one, says what is due."""
        if self.supervisor:
            self.supervisor.send()

    def advance(self, task: int) -> None:
        """The supervisor, if there is one, goes on."""
        if self.supervisor:
            self.supervisor.advance(task)

    def kill_supervisor(self) -> None:
        """kill -9: what it had in memory is gone; its trainer and its requests go on."""
        if self.supervisor:
            self.supervisor.alive = False
            self.supervisor = None

    def kill_trainer(self) -> None:
        """Kill every process of the trainer; a save without its record is worth nothing."""
        if self.trainer:
            self.trainer.die()

    def die(self) -> None:
        """Evicted or deleted."""
        self.kill_supervisor()
        self.kill_trainer()
        self.alive = False

    def lose_disk(self) -> None:
        """Reimaged: the same VM boots with an empty disk."""
        self.kill_supervisor()
        self.kill_trainer()
        self.trainer = None
        self.disk = NodeState()
        self.outbox = {}
