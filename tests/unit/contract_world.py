"""The simulated world: Azure, the service, the VMs and the wire, driven by one random source.

``live`` lets anything happen in any order; ``calm`` then stops all faults and lets everyone
have a turn, and the job must come to its end.
"""

from collections.abc import Callable
from random import Random

from tests.unit.contract_blob import Blob, Wire
from tests.unit.contract_judge import Judge, Violation
from tests.unit.contract_rules import Rules
from tests.unit.contract_service import Attempt, Service
from tests.unit.contract_supervisor import Supervisor
from tests.unit.contract_vm import Trainer, Vm
from trainer.contract import Generation, NodePhase

TOTAL_STEPS = 8
CALM_ROUNDS = 400
WORKERS = 3


class World:
    """One job from its first attempt to its end."""

    def __init__(
        self,
        rng: Random,
        rules: Rules | None = None,
        *,
        elastic: bool = False,
        list_is_true: bool = True,
    ) -> None:
        self.rng = rng
        self.rules = rules or Rules()
        self.elastic = elastic
        self.list_is_true = list_is_true
        self.judge = Judge(list_is_true=list_is_true)
        self.blob = Blob(self.judge)
        self.wire = Wire(rng)
        self.service = Service(self, wanted=rng.choice((2, 3)))
        self.vms: list[Vm] = []
        self.groups: dict[int, dict[int, Trainer]] = {}
        self.events = 0
        self.rounds = 0
        self._new_attempt()
        self._events, self._weights = _table(self)

    def live(self, events: int) -> None:
        """So many events, faults among them."""
        schedule = Random(self.rng.random())  # its own, so that fewer events are the same ones
        for event in schedule.choices(self._events, self._weights, k=events):
            self.events += 1
            event()

    def calm(self) -> None:
        """No more faults: everyone has a turn in every round, until the job has ended."""
        self.wire.faulty = False
        while not (self.service.finished and all(vm.left for vm in self.vms if vm.alive)):
            self.rounds += 1
            if self.rounds > CALM_ROUNDS:
                raise Violation("no end", self._standing())
            self.turns()
            self.look()

    def start_trainer(self, vm: Vm, row: Generation, node_id: str) -> None:
        """Called by a supervisor that has loaded the row's checkpoint."""
        member = row.member(node_id)
        assert member, "only members are told to start"
        others = [
            v.trainer
            for v in self.vms
            if v.attempt_id == vm.attempt_id and v.trainer and v.trainer.alive
        ]
        vm.trainer = Trainer(vm, row, member.node_rank)
        self.judge.trainer_started(vm.vm_id, vm.trainer, others)
        self.groups.setdefault(row.number, {})[member.node_rank] = vm.trainer

    # --- what may happen ---

    def deliver(self) -> None:
        """A few messages arrive, doubled perhaps, or are lost."""
        for _ in range(self.rng.randrange(1, 5)):
            self.wire.deliver()

    def send(self) -> None:
        """A supervisor sends what is due, or starts first."""
        if vm := self._any(lambda v: v.alive and not v.left):
            if vm.supervisor is None:
                vm.supervisor = Supervisor(self, vm)
            vm.supervisor.send()

    def work(self) -> None:
        """A supervisor goes on with its trainer or its uploads."""
        if vm := self._any(lambda v: v.supervisor is not None):
            for _ in range(self.rng.randrange(1, 9)):
                vm.advance(self.rng.randrange(2))

    def train(self) -> None:
        """A trainer goes on by itself, or all of a generation take one step together."""
        if (vm := self._any(lambda v: v.trainer is not None)) and vm.trainer:
            vm.trainer.act()
            self._collective(vm.trainer.row)

    def reconcile(self) -> None:
        """A worker of some replica goes on; late ones do too."""
        workers = self.service.workers
        if len(workers) < WORKERS and (not workers or self.rng.random() < 0.15):
            attempt = self.rng.choice(list(self.service.attempts))
            workers.append(self.service.reconcile(attempt))
        worker = self.rng.choice(workers)
        for _ in range(self.rng.randrange(1, 8)):
            if next(worker, self) is self:
                workers.remove(worker)
                return

    def list_catches_up(self) -> None:
        """The cloud's instance list tells the truth about one VM."""
        if vm := self._any(lambda v: v.listed != v.alive):
            vm.listed = vm.alive

    def list_lies(self) -> None:
        """The instance list forgets a VM that lives."""
        if not self.list_is_true and (vm := self._any(lambda v: v.listed)):
            vm.listed = False

    def replace_vm(self) -> None:
        """The scale set gets a VM for one that went."""
        attempt = next((a for a in self.service.attempts.values() if not a.over), None)
        if attempt:
            alive = [v for v in self.vms if v.attempt_id == attempt.attempt_id and v.alive]
            if len(alive) < self.service.wanted:
                self._new_vm(attempt.attempt_id)

    def delete_vm(self) -> None:
        """The scale set of an attempt that is over loses a VM."""
        if vm := self._any(lambda v: v.alive and self.service.attempts[v.attempt_id].over):
            vm.die()

    def collect_garbage(self) -> None:
        """Folders of older generations that HEAD does not name can never be named again."""
        head = self.blob.head()[1]
        named = {c.path for c in (*head.checkpoints, head.model) if c}
        folders = {n.rsplit("/", 1)[0] for n in self.blob.blobs if "/" in n}
        for path in folders - named:
            if int(path.rsplit("-g", 1)[1]) < head.generation:
                self.blob.delete_folder(path)

    def kill_supervisor(self) -> None:
        """kill -9."""
        if vm := self._any(lambda v: v.supervisor is not None):
            vm.kill_supervisor()

    def kill_worker(self) -> None:
        """A replica of the service dies between two steps."""
        if self.service.workers:
            self.service.workers.pop(self.rng.randrange(len(self.service.workers)))

    def crash_trainer(self) -> None:
        """Out of memory, a bad GPU, a time-out."""
        if vm := self._any(lambda v: v.trainer is not None):
            vm.kill_trainer()

    def evict(self) -> None:
        """Azure takes a VM, announced or not."""
        if vm := self._any(lambda v: v.alive):
            vm.die()

    def announce(self) -> None:
        """Azure announces an eviction, or the supervisor reads of it again."""
        if vm := self._any(lambda v: v.alive):
            vm.doomed = True
            if vm.supervisor and vm.supervisor.ready:
                vm.supervisor.notice()

    def lose_disk(self) -> None:
        """A VM is reimaged."""
        if vm := self._any(lambda v: v.alive):
            vm.lose_disk()

    def pass_stop_by(self) -> None:
        """A node has not heard from the service for too long."""
        if (vm := self._any(lambda v: v.supervisor is not None)) and vm.supervisor:
            vm.supervisor.overdue()

    def give_up(self) -> None:
        """The attempt has run into a time limit; the next one starts beside it."""
        for attempt in list(self.service.attempts.values()):
            if not attempt.over and len(self.service.attempts) < 3:
                self.service.give_up(attempt.attempt_id)
                self._new_attempt()

    # --- underneath ---

    def _any(self, wanted: Callable[[Vm], bool]) -> Vm | None:
        fitting = [vm for vm in self.vms if wanted(vm)]
        return self.rng.choice(fitting) if fitting else None

    def _new_attempt(self) -> None:
        attempt_id = f"att-{len(self.service.attempts) + 1}"
        self.service.attempts[attempt_id] = Attempt(attempt_id)
        for _ in range(self.service.wanted):
            self._new_vm(attempt_id)

    def _new_vm(self, attempt_id: str) -> None:
        self.vms.append(Vm(f"vm-{len(self.vms) + 1}", attempt_id))

    def _collective(self, row: Generation) -> None:
        """One step of the whole world, stop flag and all; or the time-out when one is missing."""
        group = self.groups[row.number]
        if any(not t.alive for t in group.values()):
            self._time_out(group)
            return
        if len(group) < len(row.members) or not all(t.at_boundary for t in group.values()):
            return
        stop = any(t.stop for t in group.values())
        save = self.rng.random() < 0.4
        for trainer in group.values():
            _step(trainer, stop=stop, save=save)

    def _time_out(self, group: dict[int, Trainer]) -> None:
        """A collective notices a missing rank only after a long while."""
        waiting = [t for t in group.values() if t.at_boundary]
        if waiting and self.rng.random() < 0.03:
            waiting[0].die()

    def turns(self) -> None:
        """Every node has a turn, and every message under way arrives."""
        for vm in list(self.vms):
            if vm.alive and (vm.doomed or vm.left):
                vm.die()
            vm.listed = vm.alive
            if vm.alive and not vm.left:
                self._turn(vm)
        for _ in range(len(self.wire.requests) + len(self.wire.answers)):
            self.wire.deliver()

    def look(self) -> None:
        """The cloud and the service have a turn."""
        self.replace_vm()
        self.collect_garbage()
        self.service.workers.clear()
        for attempt in list(self.service.attempts):
            for _ in self.service.reconcile(attempt):
                self.wire.deliver()

    def _turn(self, vm: Vm) -> None:
        if vm.supervisor is None:
            vm.supervisor = Supervisor(self, vm)
        for _ in range(3):
            vm.send()
        for task in (0, 1, 0, 1):
            vm.advance(task)
        if vm.trainer:
            vm.trainer.act()
            self._collective(vm.trainer.row)

    def _standing(self) -> str:
        head = self.blob.head()[1]
        nodes = [
            (vm.vm_id, vm.disk.phase.value, vm.disk.generation, vm.disk.evicting)
            for vm in self.vms
            if vm.alive
        ]
        return f"HEAD {head}, rows {sorted(self.service.rows)}, nodes {nodes}"


def _step(trainer: Trainer, *, stop: bool, save: bool) -> None:
    if stop:
        trainer.save("stop")
        trainer.end(NodePhase.STOPPED)
        return
    if trainer.step >= TOTAL_STEPS:
        if trainer.rank == 0:
            trainer.save("final")
        trainer.end(NodePhase.FINISHED)
        return
    trainer.step += 1
    if save:
        trainer.save("periodic")


def _table(world: World) -> tuple[list[Callable[[], None]], list[float]]:
    """What may happen, and how often out of a hundred or so events.

    No two worlds are alike: each draws its own bias for every fault.
    """
    daily: dict[Callable[[], None], float] = {
        world.deliver: 32,
        world.send: 14,
        world.work: 22,
        world.train: 14,
        world.reconcile: 14,
        world.list_catches_up: 4,
        world.replace_vm: 1,
        world.collect_garbage: 0.3,
    }
    faults: dict[Callable[[], None], float] = {
        world.delete_vm: 0.1,
        world.list_lies: 0.5,
        world.kill_supervisor: 0.3,
        world.kill_worker: 0.6,
        world.crash_trainer: 0.15,
        world.evict: 0.15,
        world.announce: 0.15,
        world.lose_disk: 0.1,
        world.pass_stop_by: 0.15,
        world.give_up: 0.2,
    }
    biased = [often * world.rng.choice((0, 0.5, 1, 3)) for often in faults.values()]
    return [*daily, *faults], [*daily.values(), *biased]
