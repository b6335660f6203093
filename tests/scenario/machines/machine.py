"""A virtual machine as Azure has it: its disk, its training process, and its supervisor.

The machine outlives replicas of the service; its disk, outbox and training process outlive its
supervisor. Nothing here knows of strikes at the service.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.clock import Clock
from tests.scenario.checkpoint_promises import TrainerWatch
from tests.scenario.machines.job_container import WiredContainer
from tests.scenario.machines.supervisor import Supervisor
from tests.scenario.machines.trainer_process import PendingSave, TrainerProcess
from tests.scenario.machines.wire import NodeWire
from trainer.contract import NodePhase, StepMetrics
from trainer.supervisor.control.node_state import NodeState


def _never() -> bool:
    return False


@dataclass(eq=False)
class Machine:
    """One VM of an attempt. Plays set ``hold`` and ``last``, and what is wrong with it."""

    vm_id: str
    attempt_id: str
    job_id: str
    clock: Clock
    wire: NodeWire
    container: WiredContainer
    watch: TrainerWatch
    is_killed: Callable[[], bool] = _never  # asked between two steps of the supervisor
    disk: NodeState = field(default_factory=NodeState)
    outbox: dict[str, PendingSave] = field(default_factory=dict)
    unreported: list[StepMetrics] = field(default_factory=list)
    trainer: TrainerProcess | None = None
    supervisor: Supervisor | None = None
    boots: int = 0  # of its supervisor
    hold: int = 10**9  # no training step after this one
    last: int = 0  # the last training step; 0 while none is set
    chatty: bool = False  # sends a heartbeat in each turn, not only with news
    noticed: bool = False  # Azure has announced its eviction
    silent: bool = False  # cut off from the service, and only from it
    non_retryable: bool = False  # its data cannot be trained on
    unhealthy: bool = False  # one of its GPUs is broken
    boots_never: bool = False  # it cannot pull its image
    is_dismissed: bool = False  # the service has dismissed it

    @property
    def phase(self) -> NodePhase:
        """Return the node's phase, as its disk has it."""
        return self.disk.phase

    @property
    def number(self) -> int:
        """Return the newest generation that was started or stopped here."""
        return self.disk.generation

    @property
    def step(self) -> int:
        """Return the last training step that was loaded or done here."""
        return self.trainer.step if self.trainer else 0

    @property
    def is_training(self) -> bool:
        """True while a training process lives."""
        return self.trainer is not None and self.trainer.alive

    def boot(self) -> Supervisor:
        """Return its supervisor; start one if there is none."""
        if self.supervisor is None:
            self.boots += 1
            self.supervisor = Supervisor(self)
        return self.supervisor

    def kill_supervisor(self) -> None:
        """kill -9; the training process lives on, until the next boot kills it."""
        self.supervisor = None

    def kill_trainer(self) -> None:
        """Kill the training process; a save without its record is lost."""
        if self.trainer:
            self.trainer.die()

    def lose_disk(self) -> None:
        """Reimage it: the same VM boots with an empty disk."""
        self.supervisor = self.trainer = None
        self.disk = NodeState()
        self.outbox.clear()
        self.unreported.clear()

    def announce_eviction(self) -> None:
        """Let Azure announce that it takes the machine."""
        self.noticed = True
        self.boot().notice_eviction()

    def fail_if_ill(self) -> None:
        """Let the training process fail, if its data or a GPU is bad."""
        if (self.non_retryable or self.unhealthy) and self.is_training:
            self.kill_trainer()

    async def listen(self) -> None:
        """Register, or ask for the newest directive, and begin with what it says."""
        await self._do("register", "poll", "act")

    async def report(self) -> None:
        """Upload, commit, settle, and tell the service what is new."""
        await self._do("write_saves", "upload", "commit", "settle", "act", "send_heartbeat")

    async def _do(self, *steps: str) -> None:
        for step in steps:
            if self.is_dismissed:
                return
            if self.is_killed():
                self.kill_supervisor()
                return
            await getattr(self.boot(), step)()
