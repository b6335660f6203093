"""One job's whole life on a clock of its own, struck where a run says, and judged at its end.

Where a play has many jobs the first is a Life that has others with it: what is the service's and
Azure's they share, and what is done in a round is done for all of them.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import httpx

from service.cloud.fake import FakeCloud
from service.db.attempts import attempts as attempt_rows
from service.db.attempts.attempts import AttemptRow
from service.db.core.leases import LEASE
from service.db.jobs import jobs as job_rows
from service.db.money import ledger
from service.domain.cloud.fleet import scale_set_name
from service.domain.lifecycle.attempt import AttemptTiming
from service.domain.states import JOB_TERMINAL, AttemptState, JobState
from service.reconciler.attempts import AttemptReconciler
from tests.chaos import invariants
from tests.chaos.invariants import Census
from tests.chaos.machines import Machine
from tests.chaos.play import Play
from tests.chaos.plays import PLAYS
from tests.chaos.replicas import Replicas
from tests.chaos.seams import STALLS, Harm, Hook
from tests.integration.budget_lives import MovingPrices
from tests.world import DATASET, MODEL, PRICE, World
from trainer.contract import NodePhase

ROUND = timedelta(seconds=10)
ROUNDS = 200
LAST_STEP = 6
SWEEP_EVERY = 6  # rounds
BESIDE_EVERY = 3  # rounds
LATE_ROUNDS = 12  # that what stalls sleeps: far beyond its lease
PACE = AttemptTiming(
    poll=timedelta(seconds=5), read_lag=timedelta(seconds=20), silence=timedelta(seconds=120)
)
# A machine is gone before it is seen to be: a look may wait for a poll, a killed one's lease, a
# pause after a fault and what sleeps, each in whole rounds.
SLACK = timedelta(seconds=90)


@dataclass
class Life:
    """See the module. ``done``: what has happened so far, in the play's own words."""

    world: World
    name: str  # of the play
    hook: Hook
    first: "Life | None" = None  # whose cloud and replicas this one shares
    all: list["Life"] = field(init=False)  # of the first: itself and those with it
    play: Play = field(init=False)
    born: datetime = field(init=False)
    prices: MovingPrices = field(init=False)
    cloud: FakeCloud = field(init=False)
    replicas: Replicas = field(init=False)
    census: Census = field(default_factory=Census)
    machines: dict[str, Machine] = field(default_factory=dict)
    attempts: list[AttemptRow] = field(default_factory=list)
    state: JobState = JobState.VALIDATING
    file_id: str = ""
    job_id: str = ""
    done: set[str] = field(default_factory=set)
    asked: Counter[str] = field(default_factory=Counter)  # how often
    wished: set[str] = field(default_factory=set)  # asked for, and perhaps not acknowledged yet
    broken: list[str] = field(default_factory=list)  # promises, with what shows it
    rounds: int = 0
    swept: bool = True  # the last sweep came to its end; else it is begun again at once
    waited: int = 0  # rounds, for what may never come
    apart: timedelta = timedelta(0)  # the clocks of the replicas
    slack: timedelta = SLACK
    weather: Callable[[], Awaitable[None]] | None = None  # before each round

    def __post_init__(self) -> None:
        """A cloud and prices of its own, and the first replica; or another's."""
        self.play, self.born = PLAYS[self.name], self.world.clock()
        if self.first:
            self.prices, self.cloud = self.first.prices, self.first.cloud
            self.replicas, self.all = self.first.replicas, []
            return
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
        self.replicas = Replicas(self.world, self.cloud, self.hook, self.play.rate_limited)
        more = range(1, self.play.jobs)
        self.all = [self, *(Life(self.world, self.name, self.hook, self) for _ in more)]

    async def run(self) -> list[str]:
        """To the end of its last machine; what of the promises was broken."""
        asleep = 0
        while not all(one.is_over for one in self.all):
            self.rounds += 1
            if self.rounds > ROUNDS:
                return [f"no end: {await one.told()}" for one in self.all if not one.is_over]
            await self._round()
            asleep = asleep + 1 if self.replicas.asleep else 0
            if asleep == LATE_ROUNDS and self.hook.harm is Harm.LATE:
                await self.replicas.wake()
        await self._afterwards()
        return await self._judged()

    def is_served_by(self, replicas: Replicas, apart: timedelta, slack: timedelta) -> None:
        """Others than the first one made; see ``apart`` and ``slack``."""
        for one in self.all:
            one.replicas, one.apart, one.slack = replicas, apart, slack

    async def told(self) -> dict[str, object]:
        """What is to be the same, wherever the service was struck."""
        if not self.job_id:
            return {}
        async with self.world.engine.connect() as conn:
            return await invariants.story(conn, self.job_id)

    # --- what plays are made of ---

    def mine(self) -> list[Machine]:
        """The machines of the newest attempt that are there."""
        newest = self.attempts[-1].id if self.attempts else ""
        return [m for m in self.machines.values() if m.attempt_id == newest]

    def training(self, step: int) -> bool:
        """Whether all of them have done this step, and the service knows that they train."""
        mine = self.mine()
        runs = bool(self.attempts) and self.attempts[-1].state is AttemptState.RUNNING
        busy = all(m.phase is NodePhase.RUNNING and m.step >= step for m in mine)
        return runs and len(mine) == 2 and busy

    def all_ended(self) -> bool:
        """Whether no attempt costs anything any more."""
        return all(a.state is AttemptState.ENDED for a in self.attempts)

    async def all_billed(self) -> bool:
        """Whether no machine is taken to be there."""
        async with self.world.engine.connect() as conn:
            return all(row.ended_at for row in await ledger.of_job(conn, self.job_id))

    def hold(self, step: int) -> None:
        """No machine trains beyond this step for now."""
        for machine in self.machines.values():
            machine.hold = step

    def finish(self) -> None:
        """Those of the newest attempt train to the end."""
        for machine in self.mine():
            machine.hold = machine.last = LAST_STEP

    def evict(self) -> None:
        """Azure takes the last machine of the newest attempt."""
        name = scale_set_name(self.attempts[-1].id)
        (found,) = [s for s in self.cloud.list_existing(()) if s.name == name]
        self.cloud.evict(name, found.instances[-1].instance_id)

    async def wish(self, what: str) -> None:
        """Ask now, and again in each round until it is acknowledged."""
        self.wished.add(what)
        self.asked[what] += 1
        answer = await self.ask("POST", f"/v1/fine_tuning/jobs/{self.job_id}/{what}")
        if answer is not None and answer.status_code == 200:
            self.done.add(what)

    async def ask(self, method: str, path: str, **more: Any) -> httpx.Response | None:  # noqa: ANN401
        """One request of the user; None when nobody answered, or nothing useful."""
        headers = self._key() | more.pop("headers", {})
        return await self.replicas.ask(method, path, headers=headers, **more)

    # --- how time passes ---

    async def _round(self) -> None:
        self.world.clock.advance(seconds=ROUND.total_seconds())
        await self.replicas.let_go()
        if self.weather:
            await self.weather()
        struck = self.replicas.strikes
        for one in self.all:
            if not one.job_id:
                await one.submit()
            for what in one.wished - one.done:
                await one.wish(what)
            await self.play.turn(one)
        await self._beside()
        await self.replicas.turn(self.replicas.now.jobs.run_once())
        await self.replicas.turn(self.replicas.now.attempts.run_once())
        if self.rounds % SWEEP_EVERY == 0 or not self.swept:
            sweep = self.replicas.now.orphans.run_once()
            self.swept = await self.replicas.turn(sweep) is not None
        for one in self.all:
            await one.look()
        await self._machines()
        self.census.take(self.cloud, self.world.clock())
        if self.replicas.strikes > struck:
            self.world.clock.advance(seconds=LEASE.total_seconds() + 1)

    async def _machines(self) -> None:
        """Those that have booted register at a time; the others have their turns."""
        there = [machine for one in self.all for machine in one.machines.values()]
        seated = [machine for machine in there if machine.seat is not None]
        if new := [machine for machine in there if machine.seat is None and not machine.silent]:
            answers = await self.replicas.ask_all([machine.registration() for machine in new])
            for machine, answer in zip(new, answers, strict=True):
                machine.be_seated(answer)
        for machine in seated:
            await machine.turn()

    async def _beside(self) -> None:
        if lister := self.replicas.now.attempts.lister:
            await self.replicas.turn(lister.run_once())
        if self.rounds % BESIDE_EVERY == 0:
            for name in self.play.beside:
                await self.replicas.turn(self.replicas.now.beside[name]())

    async def submit(self) -> None:
        """Upload and submit until both are acknowledged; the key makes it one job."""
        if not self.file_id:
            form = {"files": {"file": ("train.jsonl", _data())}, "data": {"purpose": "fine-tune"}}
            answer = await self.ask("POST", "/v1/files", **form)
            if answer is None:
                return
            self.file_id = answer.json()["id"]
        body: dict[str, Any] = {
            "model": MODEL,
            "training_file": self.file_id,
            "infrastructure": {"nodes": 2},
        } | self.play.asks(self)
        key = {"idempotency-key": f"life-{self.file_id}"}
        answer = await self.ask("POST", "/v1/fine_tuning/jobs", headers=key, json=body)
        if answer is not None:
            assert answer.status_code == 200, answer.text
            self.job_id = answer.json()["id"]

    async def look(self) -> None:
        """See what is there: rows, machines; and at once whether something is doubled."""
        if not self.job_id:
            return
        async with self.world.engine.connect() as conn:
            self.attempts = await attempt_rows.of_job(conn, self.job_id)
            row = await job_rows.find(conn, self.job_id)
        if row is None:
            self.broken.append("an acknowledged job is forgotten")
            return
        self.state = row.state
        self.broken += invariants.doubled(self.cloud, self.attempts)
        owners = {scale_set_name(a.id): a.id for a in self.attempts}
        there: dict[str, str] = {}
        for found in self.cloud.list_existing(()):
            there |= {i.vm_id: owners[found.name] for i in found.instances if found.name in owners}
        for gone in self.machines.keys() - there.keys():
            del self.machines[gone]
        for vm_id in [v for v in there if v not in self.machines]:
            new = Machine(vm_id, there[vm_id], self.job_id, self.replicas, self.world.store)
            new.chatty = bool(self.apart) or self.play.chatty
            new.boots_never = not self.play.boots
            self.machines[vm_id] = new

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to come, as far as was seen."""
        ended = self.state in JOB_TERMINAL and bool(self.attempts) and self.all_ended()
        return ended and self.play.until <= self.done

    async def _afterwards(self) -> None:
        """What still sleeps wakes, when all is over; the sweep has some rounds to mend it.

        A machine that is made then is deleted, and billed to the attempt that it was made for: a
        create that was on its way cannot be called back, but what it cost is in the ledger.
        """
        self.weather = None
        self.cloud.fail_next.clear()
        self.replicas.calm()
        await self.replicas.wake()
        if not self.apart and self.hook.harm not in STALLS:
            return
        for _ in range(4 * SWEEP_EVERY):
            self.rounds += 1
            await self._round()

    async def _judged(self) -> list[str]:
        broken, costs = [], []
        async with self.world.engine.connect() as conn:
            for one in self.all:
                broken += one.broken
                if one.state is not self.play.end:
                    broken.append(f"the job is {one.state}, not {self.play.end}")
                broken += await invariants.disorder(conn, one.job_id)
                costs += await ledger.of_job(conn, one.job_id)
        attempts = [row for one in self.all for row in one.attempts]
        broken += invariants.leaked(self.cloud, attempts)
        return broken + list(invariants.unbilled(self.census, costs, self.slack, self.apart))

    def _key(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.world.key}"}


def attempts_with(world: World, cloud: FakeCloud) -> AttemptReconciler:
    """The world's reconciler, for another cloud and a quicker life."""
    return replace(world.attempts, cloud=cloud, pace=PACE)


def _data() -> bytes:
    return DATASET
