"""The service in memory: what reconciler/{jobs,attempts,look}.py do, without the database.

The decisions and every rule about nodes are the real ones. It may be killed between two effects
(``_may_die``); whoever breaks a promise gets a Violation with its name.
"""

from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, TypeVar

from service.cloud.fake import FakeCloud
from service.cloud.provider import CloudError, InsufficientCapacity, ScaleSetNotFound
from service.domain.cloud.fleet import Instance, Offering, ScaleSet, ScaleSetPhase, ScaleSetSpec
from service.domain.lifecycle import attempt_steps
from service.domain.lifecycle import job as jobs
from service.domain.lifecycle.attempt import (
    Attempt,
    AttemptStep,
    AttemptTiming,
    AttemptView,
    CreateScaleSet,
    DeleteScaleSet,
    MoveAttempt,
    OpenGeneration,
    RefillScaleSet,
    RequeueAttempt,
)
from service.domain.lifecycle.elastic import ElasticNodes, GrowthOutlook
from service.domain.lifecycle.generation import (
    HaltGeneration,
    count_without_loss,
    is_finished,
    is_settled,
)
from service.domain.lifecycle.job import Job, LastAttempt, PrepareJob, StartAttempt
from service.domain.lifecycle.node import NodeRecord, apply_directive, node_view
from service.domain.states import (
    ATTEMPT_MOVES,
    ATTEMPT_OVER,
    JOB_MOVES,
    JOB_TERMINAL,
    AttemptState,
    CapacityType,
    JobState,
    Outcome,
)
from tests.clock import Clock
from tests.unit.lifecycle_node import Node
from trainer.contract import DirectiveKind, Generation, Head, Member

SPOT = Offering(
    region="eastus", vm_size="Standard_ND96amsr_A100_v4", capacity_type=CapacityType.SPOT
)
PACE = AttemptTiming()
NODES = 2
_WITH_NODES = frozenset({AttemptState.STARTING, AttemptState.RUNNING})
T = TypeVar("T")


class Violation(AssertionError):
    """A promise was broken."""

    def __init__(self, promise: str, story: object) -> None:
        super().__init__(f"{promise}: {story}")
        self.promise = promise


class Killed(Exception):
    """The service dies here."""


@dataclass(frozen=True, kw_only=True)
class Decisions:
    """What is under test; a planted fault takes the place of one of them."""

    attempt: Callable[[Attempt, AttemptView, datetime, AttemptTiming], AttemptStep] = (
        attempt_steps.next_step
    )
    job: Callable[[Job, datetime], jobs.JobStep] = jobs.next_step


def done(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never really waits, as those of the fake cloud."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return] # StopIteration carries Any
    raise AssertionError("the fake cloud never waits")


class Service:
    """Its rows, and what a worker does with them."""

    def __init__(self, rng: Random, decisions: Decisions | None = None) -> None:
        self.rng = rng
        self.decide = decisions or Decisions()
        self.clock = Clock()
        self.cloud = FakeCloud(now=self.clock)
        self.job = Job(id="job", state=JobState.VALIDATING, since=self.clock())
        self.attempts: list[Attempt] = []
        self.refusals: dict[str, int] = {}
        self.listed: dict[str, tuple[str, ...]] = {}  # VMs of an attempt, as last seen to run
        self.nodes: dict[str, list[Node]] = {}
        self.generations: dict[int, Generation] = {}
        self.halts: dict[int, tuple[datetime, DirectiveKind]] = {}
        self.head = Head(generation=0)
        self.recorded: set[str] = set()  # checkpoints that the service knows of
        self.trainer_errors = 0
        self.elastic: ElasticNodes | None = None
        self.outlook = GrowthOutlook()
        self.mortality = 0.0  # of the service, at each place where it can die

    @property
    def full(self) -> int:
        """How many machines an attempt has, when all are there."""
        return self.elastic.node_counts[-1] if self.elastic else NODES

    def reconcile(self) -> None:
        """Everything that is not over is looked at once."""
        with suppress(Killed):
            self._reconcile_job()
        for number in range(len(self.attempts)):
            if self.attempts[number].state is not AttemptState.ENDED:
                with suppress(Killed, CloudError):
                    self._reconcile(number)

    def wish(self, *, cancel: bool = False, pause: bool | None = None) -> None:
        """The user asks; a job that is over cannot be asked any more."""
        if self.job.state not in JOB_TERMINAL:
            cancel = cancel or self.job.cancel_requested
            pause = self.job.pause_requested if pause is None else pause
            self.job = replace(self.job, cancel_requested=cancel, pause_requested=pause)

    def is_over(self, attempt_id: str) -> bool:
        """True when the service answers the attempt's nodes with 410."""
        return next(a for a in self.attempts if a.id == attempt_id).state in ATTEMPT_OVER

    def newest_of(self, attempt_id: str) -> int:
        """Number of the attempt's newest generation, or 0."""
        numbers = (n for n, g in self.generations.items() if g.attempt_id == attempt_id)
        return max(numbers, default=0)

    def live(self) -> list[Attempt]:
        """Attempts that may still train."""
        return [a for a in self.attempts if a.state not in ATTEMPT_OVER]

    # --- the service: jobs ---

    def _reconcile_job(self) -> None:
        job = replace(self.job, last_attempt=self._last())
        match self.decide.job(job, self.clock()):
            case PrepareJob():
                self._move_job(JobState.QUEUED)
            case StartAttempt(number=number):
                self._start_attempt(number)
            case jobs.MoveJob(to=to):
                self._move_job(to)
            case jobs.PauseJob():  # its user resumes it at once
                self._move_job(JobState.PAUSED)
            case _:
                pass

    def _last(self) -> LastAttempt | None:
        if not self.attempts:
            return None
        last = self.attempts[-1]
        refused = last.outcome is Outcome.NO_CAPACITY
        return LastAttempt(
            id=last.id,
            number=last.number,
            state=last.state,
            since=last.since,
            outcome=last.outcome,
            reason="",
            refusals=self.refusals[last.id] + 1 if refused else 0,
        )

    def _start_attempt(self, number: int) -> None:
        last = self._last()
        new = Attempt(
            id=f"att-{number}",
            job_id="job",
            number=number,
            state=AttemptState.PENDING,
            since=self.clock(),
            offering=SPOT,
            instance_count=self.full,
            elastic=self.elastic,
        )
        if number != len(self.attempts) + 1:
            raise Violation("attempts are numbered without gaps", number)
        self.refusals[new.id] = last.refusals if last else 0
        self.attempts.append(new)

    def _move_job(self, to: JobState) -> None:
        if to not in JOB_MOVES[self.job.state]:
            raise Violation("each move is in the table", (self.job.state, to))
        if to is JobState.SUCCEEDED and self.head.model is None:
            raise Violation("success has a model", self.head)
        self.job = replace(self.job, state=to, since=self.clock())

    # --- the service: attempts ---

    def _reconcile(self, index: int) -> None:
        row = self.attempts[index]
        wish = Outcome.PAUSED if self.job.pause_requested else None
        wish = Outcome.CANCELLED if self.job.cancel_requested else wish
        scale_set = self._ask(row)
        if scale_set and sum(i.running for i in scale_set.instances) >= self.full:
            row = self.attempts[index] = replace(row, refills=0)
        seen = self._look(row, scale_set)
        asked = replace(row, wish=wish, trainer_errors=self.trainer_errors)
        step = self.decide.attempt(asked, seen, self.clock(), PACE)
        if isinstance(step, RequeueAttempt) and row.state in _WITH_NODES:
            _not_blind(seen)
        self._act(index, step, seen)

    def _ask(self, row: Attempt) -> ScaleSet | None:
        if row.state is AttemptState.PENDING:
            return None
        try:
            found = done(self.cloud.get(row.scale_set_name))
        except ScaleSetNotFound:
            return None
        except CloudError:
            if row.state not in _WITH_NODES:
                raise
            as_before = tuple(
                Instance(instance_id="", vm_id=v, name="") for v in self.listed[row.id]
            )
            return ScaleSet(name="", phase=ScaleSetPhase.READY, instances=as_before)
        self.listed[row.id] = tuple(i.vm_id for i in found.instances if i.running)
        return found

    def _look(self, row: Attempt, scale_set: ScaleSet | None) -> AttemptView:
        running = {i.vm_id for i in scale_set.instances if i.running} if scale_set else set()
        records = [n.record for n in self.nodes.get(row.id, ()) if n.record]
        number = self.newest_of(row.id)
        generation = self.generations.get(number)
        looks = row.state in _WITH_NODES
        if looks and (news := {c.path for c in self.head.checkpoints} - self.recorded):
            self.recorded |= news
            self.trainer_errors = 0
        members = [r for r in records if generation and generation.member(r.node_id)]
        start = generation.checkpoint.step if generation and generation.checkpoint else 0
        halt = self.halts.get(number)
        heard = min((r.heard_at for r in members), default=None)
        nodes = [node_view(r, r.vm_id in running, self._quiet(r)) for r in records]
        return AttemptView(
            scale_set=scale_set,
            nodes=nodes,
            heard_at=None if heard is None else datetime.fromtimestamp(heard, UTC),
            generation=generation,
            halted_at=halt[0] if halt else None,
            halt_kind=halt[1] if halt else None,
            stepped=any(r.generation == number and r.step > start for r in members),
            model_committed=looks and self.head.model is not None,
            fruitless=count_without_loss(self._without_news(row.id), nodes),
            outlook=self.outlook,
        )

    def _quiet(self, record: NodeRecord) -> timedelta:
        return self.clock() - datetime.fromtimestamp(record.heard_at, UTC)

    def _without_news(self, attempt_id: str) -> list[Generation]:
        """Generations of the attempt that loaded what is still the newest checkpoint."""
        mine = [g for g in self.generations.values() if g.attempt_id == attempt_id]
        return [g for g in mine if g.checkpoint == self.head.newest]

    def _act(self, index: int, step: AttemptStep, seen: AttemptView) -> None:
        row = self.attempts[index]
        match step:
            case CreateScaleSet():
                self._create(index)
            case RefillScaleSet(useless):
                asked = replace(row, refills=row.refills + 1, refilled_at=self.clock())
                self.attempts[index] = asked
                self._may_die()
                with suppress(InsufficientCapacity, ScaleSetNotFound):
                    done(self.cloud.refill(row.scale_set_name, self.full, useless))
            case DeleteScaleSet():
                with suppress(ScaleSetNotFound):
                    done(self.cloud.delete(row.scale_set_name))
            case HaltGeneration():
                assert seen.generation is not None
                self._direct(seen.generation, step.kind, step.node_ids)
            case OpenGeneration():
                self._open(row, step)
            case MoveAttempt():
                self._move(index, step.to, step.outcome)
            case _:
                pass

    def _create(self, index: int) -> None:
        row = self.attempts[index]
        spec = ScaleSetSpec(
            name=row.scale_set_name, offering=SPOT, instance_count=self.full, cloud_init=""
        )
        try:
            done(self.cloud.create(spec))
        except InsufficientCapacity:
            self._may_die()
            self._move(index, AttemptState.TERMINATING, Outcome.NO_CAPACITY)

    def _open(self, row: Attempt, step: OpenGeneration) -> None:
        allowed = self.elastic.node_counts if self.elastic else (NODES,)
        if len(step.nodes) not in allowed:
            raise Violation("a world is one that job and batch allow", step.nodes)
        if step.after_error and step.lost:
            raise Violation("an eviction is no trainer error", step.lost)
        number = max(self.generations, default=0) + 1
        if self.head.generation not in (number - 1, number):
            raise Violation("the number of generations grows by one", (self.head, number))
        self.head = self.head.fenced(number)
        self._may_die()
        if self.head.model is not None:
            return
        members = tuple(
            Member(node_id=n.node_id, vm_id=n.vm_id, address=n.address, node_rank=rank)
            for rank, n in enumerate(step.nodes)
        )
        generation = Generation(
            number=number,
            job_id="job",
            attempt_id=row.id,
            members=members,
            processes_per_node=1,
            master_address="10.0.0.4",
            master_port=29500,
            checkpoint=self.head.newest,
            run_spec_sha256="",
        )
        self.generations[number] = generation
        self.trainer_errors += step.after_error
        self._direct(generation, DirectiveKind.START, tuple(m.node_id for m in members))

    def _direct(self, row: Generation, kind: DirectiveKind, node_ids: tuple[str, ...]) -> None:
        """One transaction: the directives, and since when the generation is told to stop."""
        told = self.halts.get(row.number)
        stop = kind is DirectiveKind.STOP
        if kind is not DirectiveKind.START and (told is None or (stop and told[1] is not kind)):
            self.halts[row.number] = (self.clock(), kind)
        for node in self.nodes[row.attempt_id]:
            if node.record and node.record.node_id in node_ids:
                node.record = apply_directive(node.record, kind, row.number)

    def _move(self, index: int, to: AttemptState, outcome: Outcome | None) -> None:
        row = self.attempts[index]
        if to not in ATTEMPT_MOVES[row.state]:
            raise Violation("each move is in the table", (row.state, to))
        self.attempts[index] = replace(row, state=to, outcome=outcome, since=self.clock())

    def _may_die(self) -> None:
        if self.rng.random() < self.mortality:
            raise Killed


def _not_blind(seen: AttemptView) -> None:
    """Waiting is no answer to a machine that is gone."""
    current = seen.generation
    if current is None or seen.model_committed or is_finished(current, seen.nodes):
        return
    running = {i.vm_id for i in seen.scale_set.instances if i.running} if seen.scale_set else set()
    gone = {m.vm_id for m in current.members} - running
    if gone and not is_settled(current, seen.nodes):
        raise Violation("who survives an eviction is told at once", gone)
