"""One world for whole lives: the real service, its fakes, nodes with real rules, one clock.

A scenario has jobs that run one play in step, and replicas that may be struck meanwhile. Every
random choice comes from its ``dice``, and time passes in rounds of ten seconds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random

from service.cloud.fake import FakeCloud
from service.db.attempts.attempts import AttemptRow
from service.db.core.leases import LEASE
from service.db.money import ledger
from service.domain.lifecycle.attempt import AttemptTiming
from service.domain.states import JobState
from service.reconciler.attempts.attempts import AttemptReconciler
from tests.integration.money.budget_lives import MovingPrices
from tests.nodes.scripted_node import metrics
from tests.scenario import promises
from tests.scenario.checkpoint_promises import TrainerWatch, WatchedStore
from tests.scenario.job import ScenarioJob
from tests.scenario.machines import node_messages
from tests.scenario.machines.job_container import BlobWire
from tests.scenario.machines.machine import Machine
from tests.scenario.machines.trainer_process import TrainerProcess, step_together
from tests.scenario.machines.wire import NodeWire
from tests.scenario.plays.play import Play
from tests.scenario.promises import Census
from tests.scenario.replicas import Replicas
from tests.scenario.seams import STALLS, Harm, Hook
from tests.world import PRICE, World

ROUND = timedelta(seconds=10)
ROUNDS = 200
SWEEP_EVERY = 6  # rounds
PERIODIC_EVERY = 3  # rounds
LATE_ROUNDS = 12  # length of a stall: far beyond its lease
PACE = AttemptTiming(
    poll=timedelta(seconds=5), read_lag=timedelta(seconds=20), silence=timedelta(seconds=120)
)
# The service sees a deletion late: an observation may wait for a poll, the lease of a killed
# replica, a backoff and a stalled replica, each in whole rounds.
SLACK = timedelta(seconds=90)


@dataclass
class Scenario:
    """One world; ``hook`` says where the first replica is struck."""

    world: World
    play: Play
    hook: Hook = field(default_factory=Hook)
    dice: Random = field(default_factory=lambda: Random(0))
    born: datetime = field(init=False)
    prices: MovingPrices = field(init=False)
    cloud: FakeCloud = field(init=False)
    store: WatchedStore = field(init=False)
    replicas: Replicas = field(init=False)
    node_wire: NodeWire = field(init=False)
    blob_wire: BlobWire = field(init=False)
    watch: TrainerWatch = field(init=False)
    jobs: list[ScenarioJob] = field(init=False)
    census: Census = field(default_factory=Census)
    rounds: int = 0
    swept: bool = True  # the last sweep ended; else it starts again at once
    apart: timedelta = timedelta(0)  # the largest difference of the replicas' clocks
    slack: timedelta = SLACK
    disturb: Callable[[], Awaitable[None]] | None = None  # before each round
    kills_supervisor: Callable[[], bool] = lambda: False  # called between two steps of a node

    def __post_init__(self) -> None:
        """Create the cloud, the wires, the first replica and the jobs."""
        assert isinstance(self.world.store, WatchedStore), "see `points.a_world`"
        self.born, self.store = self.world.clock(), self.world.store
        self.prices = MovingPrices(PRICE)
        self.world.parts = replace(self.world.parts, prices=self.prices)
        self.world.jobs = replace(self.world.jobs, prices=self.prices)
        self.cloud = FakeCloud(
            now=self.world.clock,
            create_time=timedelta(seconds=10),
            delete_time=timedelta(seconds=10),
            visible_after=timedelta(seconds=5),
        )
        self.world.attempts = attempts_with(self.world, self.cloud)
        self.watch = TrainerWatch(self.store, living=self._trainers_of)
        self.blob_wire = BlobWire(self.dice)
        self.jobs = [ScenarioJob(self, self.born) for _ in range(self.play.jobs)]
        self.be_served_by(Replicas(self.world, self.cloud, self.hook, self.play.rate_limited))

    def be_served_by(
        self,
        replicas: Replicas,
        apart: timedelta = timedelta(0),
        slack: timedelta = SLACK,
    ) -> None:
        """Use these replicas; see ``apart`` and ``slack``."""
        self.replicas, self.apart, self.slack = replicas, apart, slack
        self.node_wire = NodeWire(replicas, self.dice)

    @property
    def attempts(self) -> list[AttemptRow]:
        """Return the attempts of all jobs as last read."""
        return [row for job in self.jobs for row in job.attempts]

    @property
    def is_strict(self) -> bool:
        """True if no create can succeed after the end of its attempt."""
        return not (self.apart or self.play.orphans or self.hook.harm in STALLS)

    # --- how time passes ---

    async def run(self) -> list[str]:
        """Run until the last machine is gone; return the broken promises."""
        asleep = 0
        while not all(job.is_over for job in self.jobs):
            if self.rounds >= ROUNDS:
                return [f"no end: {await job_events(job)}" for job in self.jobs if not job.is_over]
            await self.pass_time()
            asleep = asleep + 1 if self.replicas.asleep else 0
            if asleep == LATE_ROUNDS and self.hook.harm is Harm.LATE:
                await self.replicas.wake()
        await self._let_late_work_end()
        return await self._broken_promises()

    async def pass_time(self, rounds: int = 1) -> None:
        """Run rounds, in each of which everyone acts once."""
        for _ in range(rounds):
            self.rounds += 1
            await self._round()

    async def expect(self, condition: Callable[[], bool], rounds: int = ROUNDS) -> None:
        """Let time pass until the condition holds. Raises AssertionError after ``rounds``."""
        for _ in range(rounds):
            if condition():
                return
            await self.pass_time()
        stories = [await job_events(job) for job in self.jobs]
        raise AssertionError(f"not within {rounds} rounds: {stories}, {self.broken_so_far()}")

    async def _round(self) -> None:
        self.world.clock.advance(seconds=ROUND.total_seconds())
        await self.replicas.end_stalled_transactions()
        if self.disturb:
            await self.disturb()
        struck = self.replicas.strikes
        for job in self.jobs:
            if not job.job_id:
                await job.submit()
            for action in job.wished - job.done:
                await job.request_command(action)
            await self.play.turn(job)
        await self._serve()
        for job in self.jobs:
            await job.check_promises()
        await self._run_machines()
        self.census.count_machines(self.cloud, self.world.clock())
        if self.replicas.strikes > struck:
            self.world.clock.advance(seconds=LEASE.total_seconds() + 1)

    async def _serve(self) -> None:
        """Run due work of the reconcilers, each piece on the active replica."""
        replicas = self.replicas
        if lister := replicas.now.attempts.lister:
            await replicas.turn(lister.run_once())
        if self.rounds % PERIODIC_EVERY == 0:
            for name in self.play.periodic_work:
                await replicas.turn(replicas.now.periodic[name]())
        await replicas.turn(replicas.now.jobs.run_once())
        await replicas.turn(replicas.now.attempts.run_once())
        if self.rounds % SWEEP_EVERY == 0 or not self.swept:
            self.swept = await replicas.turn(replicas.now.orphans.run_once()) is not None

    # --- the machines ---

    async def _run_machines(self) -> None:
        """All machines apply directives, then every generation takes a step, then all report."""
        machines = [m for job in self.jobs for m in job.machines.values() if not m.is_dismissed]
        await self._register([m for m in machines if not m.silent and m.boot().seat is None])
        for machine in machines:
            await machine.listen()
        for job in self.jobs:
            self._step(job)
        for machine in machines:
            await machine.report()
        await self.node_wire.deliver_late()
        await self.blob_wire.deliver_late()

    async def _register(self, machines: list[Machine]) -> None:
        """Register them at the same time, so that they share batches."""
        if not machines or self.node_wire.is_faulty:
            return
        requests = [node_messages.registration(machine) for machine in machines]
        answers = await self.replicas.ask_all(requests)
        for machine, answer in zip(machines, answers, strict=True):
            machine.boot().take_seat(answer)

    def _step(self, job: ScenarioJob) -> None:
        """Take one training step in every generation of the job."""
        groups: dict[int, list[Machine]] = {}
        for machine in job.machines.values():
            machine.fail_if_ill()
            if machine.trainer and machine.trainer.alive:
                machine.trainer.hold, machine.trainer.last = machine.hold, machine.last
                groups.setdefault(machine.trainer.generation.number, []).append(machine)
        for members in groups.values():
            trainers = [m.trainer for m in members if m.trainer]
            if step_together(trainers):
                self._note_step(members)

    def _note_step(self, members: list[Machine]) -> None:
        for machine in members:
            machine.boot().news = True
            if machine.trainer and machine.trainer.rank == 0:
                machine.unreported.append(metrics(machine.trainer.step))

    def _trainers_of(self, attempt_id: str) -> Iterator[TrainerProcess]:
        for job in self.jobs:
            for machine in job.machines.values():
                if machine.attempt_id == attempt_id and machine.trainer and machine.is_training:
                    yield machine.trainer

    # --- the end ---

    async def _let_late_work_end(self) -> None:
        """Resume stalled work at the end; the sweep has some rounds to repair its effects.

        A machine created then is deleted and billed to its attempt: a create that was sent cannot
        be withdrawn, but its cost is in the ledger.
        """
        self.disturb = None
        self.cloud.fail_next.clear()
        self.replicas.restore()
        await self.replicas.wake()
        if self.apart or self.hook.harm in STALLS:
            await self.pass_time(4 * SWEEP_EVERY)

    def broken_so_far(self) -> list[str]:
        """Return the broken promises found so far."""
        broken = [line for job in self.jobs for line in job.broken]
        return broken + self.store.broken + self.watch.broken

    async def _broken_promises(self) -> list[str]:
        broken, costs = self.broken_so_far(), []
        async with self.world.engine.connect() as conn:
            for job in self.jobs:
                if self.play.end not in (None, job.state):
                    broken.append(f"the job is {job.state}, not {self.play.end}")
                if job.state is JobState.SUCCEEDED and (await job.head()).model is None:
                    broken.append("the job has succeeded without a model")
                broken += await promises.disorder(conn, job.job_id)
                broken += await promises.odd_sizes(conn, job.job_id, job.sizes)
                costs += await ledger.of_job(conn, job.job_id)
        broken += promises.leaked(self.cloud, self.attempts)
        return broken + list(promises.unbilled(self.census, costs, self.slack, self.apart))


async def job_events(job: ScenarioJob) -> dict[str, object]:
    """Return the facts of a job that must not depend on where the service was struck."""
    if not job.job_id:
        return {}
    async with job.scenario.world.engine.connect() as conn:
        return await promises.story(conn, job.job_id)


def attempts_with(world: World, cloud: FakeCloud) -> AttemptReconciler:
    """Return the world's reconciler with another cloud and shorter intervals."""
    return replace(world.attempts, cloud=cloud, pace=PACE)
