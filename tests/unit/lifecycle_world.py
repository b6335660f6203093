"""One job's whole life in memory: the service, its machines, and the promises about both."""

from collections.abc import Iterator
from random import Random

from service.domain.lifecycle.attempt import Attempt
from service.domain.states import ATTEMPT_OVER, JOB_TERMINAL, AttemptState
from tests.unit.lifecycle_node import Node
from tests.unit.lifecycle_service import NODES, Decisions, Service, Violation
from trainer.contract import Committed, Generation, NodePhase


class Life(Service):
    """``tick`` lets time pass for everybody."""

    def __init__(self, rng: Random, decisions: Decisions | None = None) -> None:
        super().__init__(rng, decisions)
        self.duds = 0.0  # share of machines that never come up
        self.total_steps = 40
        self.saves = 0.3  # periodic ones, for each training step
        self.poison = 0.0  # how often a training step is a trainer's last
        self.crashes = 0  # of trainers

    def tick(self, seconds: float = 15.0, *, service: bool = True) -> None:
        """Everyone has a turn; the service only while it is up."""
        self.clock.advance(seconds=seconds)
        self._machines()
        if service:
            self.reconcile()
            self.check()

    def living(self) -> Iterator[Node]:
        """Nodes whose VM exists and runs."""
        for attempt in self.attempts:
            running = self._running(attempt)
            yield from (n for n in self.nodes.get(attempt.id, ()) if n.vm_id in running)

    def trainer_started(self, node: Node) -> None:
        """Called by a node: no other generation may still train on machines of its attempt."""
        for other in self.living():
            same = other.attempt_id == node.attempt_id and other.trains and node.trains
            if same and other.trains != node.trains:
                raise Violation("one generation trains at a time", node.trains)

    def crash(self, node: Node) -> None:
        """A trainer ends with an error."""
        self.crashes += 1
        node.ends(NodePhase.FAILED)

    def _running(self, attempt: Attempt) -> set[str]:
        entry = self.cloud._entries.get(attempt.scale_set_name)
        if entry is None:
            return set()
        return {i.vm_id for i in self.cloud._describe(entry).instances if i.running}

    def _machines(self) -> None:
        """VMs come and go; those that live talk to the service and train."""
        self.cloud.costing()  # what has been deleted by now is gone
        for attempt in self.attempts:
            known = self.nodes.setdefault(attempt.id, [])
            running = self._running(attempt)
            for vm_id in sorted(running - {n.vm_id for n in known}):
                hung = self.rng.random() < self.duds
                known.append(Node(self, attempt.id, vm_id, hung=hung))
            for node in known:
                if node.vm_id in running:
                    node.turn()
                else:
                    node.trains = None
        for number in {n.trains.number for n in self.living() if n.trains}:
            self._train(self.generations[number])

    def _train(self, row: Generation) -> None:
        """A training step needs every member; without one, those told to stop are killed."""
        mine = [n for n in self.living() if n.trains == row and not n.hung]
        if len(mine) < len(row.members):
            for node in mine:
                if node.saving:
                    node.ends(NodePhase.STOPPED)
            return
        if self.rng.random() < self.poison:
            self.crash(mine[0])
            return
        saving, last = any(n.saving for n in mine), mine[0].step >= self.total_steps
        if last or saving or self.rng.random() < self.saves:
            self._commit(row.number, mine[0].step, last=last)
        for node in mine:
            if last or saving:
                node.ends(NodePhase.FINISHED if last else NodePhase.STOPPED)
            else:
                node.step += 1

    def _commit(self, number: int, step: int, *, last: bool) -> None:
        if self.head.generation != number or self.head.model:
            return
        entry = Committed(
            path=f"step-{step}-of-{number}-{last}",
            step=step,
            consumed_samples=step,
            world_size=NODES,
            generation=number,
            kind="final" if last else "periodic",
            size=1,
            manifest_sha256="",
            committed_at=0.0,
        )
        head = self.head
        self.head = head.with_model(entry) if last else head.with_checkpoint(entry)

    # --- promises ---

    def check(self) -> None:
        """What must be true after every event."""
        live = self.live()
        if len(live) > 1 or any(a is not self.attempts[-1] for a in live):
            raise Violation("one live attempt", self.attempts)
        for attempt in self.attempts:
            if (attempt.state in ATTEMPT_OVER) != (attempt.outcome is not None):
                raise Violation("the outcome is known from terminating on", attempt)
        may_exist = {
            a.scale_set_name
            for a in self.attempts
            if a.state not in (AttemptState.PENDING, AttemptState.ENDED)
        }
        if leaked := self.cloud.costing() - may_exist:
            raise Violation("what costs money belongs to an attempt that knows it", leaked)

    def standing(self) -> str:
        """Where everything is, for a failing test's message."""
        rows = [(a.state.value, a.outcome, a.since.isoformat()) for a in self.attempts]
        nodes = [(n.attempt_id, n.phase.value, n.generation, n.silent) for n in self.living()]
        return f"{self.job}, {rows}, {nodes}, HEAD {self.head}, {self.clock()}"

    def over(self) -> bool:
        """The job is decided and every machine is gone."""
        ended = all(a.state is AttemptState.ENDED for a in self.attempts)
        return self.job.state in JOB_TERMINAL and ended and not self.cloud.costing()
