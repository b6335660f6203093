"""Many jobs with budgets, under everything that makes a bill larger than it was thought to be.

One world, one simulated clock, all lives side by side: deletes take up to 13 minutes; machines are
evicted; the service is away for up to half an hour, and Azure for a while; fresh scale sets cannot
be seen for a minute and boot for more, so that what they cost is metered late; attempts overlap;
nodes are slow to save, or never answer; prices move by a tenth; budgets are raised. What each job
really cost is counted apart from the service, from what exists. Machines use `HeartbeatBatcher`,
as in an api process: a crowd shares its statements.
"""

import asyncio
import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cached_property
from typing import Any

from sqlalchemy import func, select

from service.db.schema import tables
from service.domain.cloud.fleet import Offering, Price, scale_set_name
from service.domain.money.storage_cost import StoragePrices
from service.domain.states import ATTEMPT_WITH_NODES, JOB_TERMINAL, AttemptState
from service.domain.storage.access_tiers import StorageAccount
from service.operations.nodes.heartbeats import HeartbeatBatcher
from service.operations.nodes.registrations import RegistrationBatcher
from service.pricing.storage_prices import TABLE
from service.reconciler.sweeps.price_watch import PriceWatch
from tests.integration.db.rows import registration
from tests.integration.money.controlled_clouds import ControlledCloud
from tests.integration.stored_jobs import put_files
from tests.nodes.scripted_node import commit, committed, metrics
from tests.world import PRICE, World
from trainer.contract import DirectiveKind, Heartbeat, NodePhase

_STEPS = 10  # of every job; how long one takes is drawn
_ANY = 2**31 - 1  # number of an order: whatever it is, without its generation
_SHORT, _OVER = 0.02, 0.08  # odds of a look that Spot is sold out from now on, and that it ends


class MovingPrices:
    """One offering, whose price a test moves."""

    def __init__(self, price: Price) -> None:
        self.now = price

    async def prices(self, offerings: list[Offering]) -> dict[Offering, Price]:
        """Return the same price for all offerings."""
        return dict.fromkeys(offerings, self.now)

    async def storage(self, account: StorageAccount) -> StoragePrices:  # noqa: ARG002 - one account
        """Those of the table."""
        return TABLE

    async def close(self) -> None:
        """Nothing to let go of."""


@dataclass
class Life:
    """One job: what it was given, how its nodes behave, what it has really cost."""

    id: str
    nodes: int
    cap: Decimal
    seconds_per_step: float
    seconds_to_save: float
    deaf: bool  # its nodes never do what they are told
    boots: timedelta
    bill: Decimal = Decimal(0)
    done: float = 0.0  # steps
    kept: int = 0  # steps that a checkpoint holds


@dataclass
class Node:
    """A machine's supervisor, as far as money is concerned."""

    vm_id: str
    boots_until: datetime
    node_id: str = ""
    epoch: int = 0
    seq: int = 0
    phase: NodePhase = NodePhase.READY
    generation: int = 0
    directive_kind: DirectiveKind = DirectiveKind.CARRY_ON
    directed_at: datetime | None = None


@dataclass
class Hostile:
    """The world and its cloud; ``draw`` decides everything."""

    world: World
    draw: random.Random
    prices: MovingPrices
    cloud: ControlledCloud
    lives: dict[str, Life] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)  # by vm_id
    away_until: datetime | None = None
    evicted: int = 0
    outages: int = 0

    @cached_property
    def hearing(self) -> HeartbeatBatcher:
        """As an api process has one."""
        return HeartbeatBatcher(self.world.engine)

    @cached_property
    def registering(self) -> RegistrationBatcher:
        """The same."""
        return RegistrationBatcher(self.world.engine)

    @property
    def watch(self) -> PriceWatch:
        """As main makes it."""
        world = self.world
        return PriceWatch(engine=world.engine, prices=self.prices, now=world.clock)

    async def submit(self, job_count: int) -> None:
        """Jobs of all sorts."""
        file = await self.world.upload()
        for number in range(job_count):
            count = self.draw.choice([1, 2, 3])
            cap = Decimal(self.draw.randint(10, 60)) * count
            action = self.draw.choice(["pause", "cancel"])
            budget = {"amount": str(cap), "on_exhausted": action}
            infrastructure: dict[str, Any] = {"nodes": count, "budget": budget}
            job = await self.world.submit(
                training_file=file, infrastructure=infrastructure, metadata={"n": str(number)}
            )
            self.lives[job["id"]] = Life(
                id=job["id"],
                nodes=count,
                cap=cap,
                seconds_per_step=self.draw.uniform(300, 4000),
                seconds_to_save=self.draw.uniform(5, 840),
                deaf=self.draw.random() < 0.15,
                boots=timedelta(minutes=self.draw.uniform(1, 15)),
            )

    async def live(self, hours: float) -> None:
        """Let so much time pass, or less where nothing is left that could cost anything."""
        world, end = self.world, self.world.clock() + timedelta(hours=hours)
        while world.clock() < end and not await self._all_over():
            await self._change_cloud()
            owners = await self._owners()
            seconds = self.draw.uniform(60, 110)
            self._bill(owners, seconds)
            world.clock.advance(seconds=seconds)
            await self.cloud.pass_time()
            if self.away_until and world.clock() < self.away_until:
                continue
            self.away_until = None
            if self.draw.random() < 0.2:
                await self.watch.run_once()
            for _ in range(2):
                await world.jobs.run_once(100)
                await world.attempts.run_once(100)
            await self._act(seconds)

    async def _change_cloud(self) -> None:
        draw, cloud, now = self.draw, self.cloud, self.world.clock()
        create = timedelta(minutes=draw.uniform(1, 6))
        delete = timedelta(minutes=draw.uniform(0.5, 13))
        await cloud.takes(create, delete, lag=timedelta(seconds=draw.uniform(0, 55)))
        await cloud.fail(draw.randint(1, 20) if draw.random() < 0.05 else 0)
        if draw.random() < (_OVER if cloud.sold_out else _SHORT):
            await cloud.change_capacity()
        if self.away_until is None and draw.random() < 0.01:
            self.away_until = now + timedelta(minutes=draw.uniform(3, 29))
            self.outages += 1
        if draw.random() < 0.02:
            hourly = (PRICE.hourly * Decimal(str(draw.uniform(0.95, 1.05)))).quantize(
                Decimal("0.0001")
            )
            self.prices.now = Price(hourly=hourly, on_demand_hourly=PRICE.on_demand_hourly)
        for name, vm_ids in cloud.machines().items():
            if draw.random() < 0.01 and vm_ids:
                await cloud.evict(name, draw.choice(sorted(vm_ids)))
                self.evicted += 1

    def _bill(self, owners: dict[str, str], seconds: float) -> None:
        """From the order until it is gone, each machine at the price of now."""
        cost = self.prices.now.hourly * Decimal(str(seconds)) / 3600
        for name, amount in self.cloud.bill(cost):
            self.lives[owners[name]].bill += amount

    async def _owners(self) -> dict[str, str]:
        """Return the job of each scale set that there was ever."""
        async with self.world.engine.connect() as conn:
            rows = await conn.execute(select(tables.attempts.c.id, tables.attempts.c.job_id))
        return {scale_set_name(r.id): r.job_id for r in rows}

    async def _act(self, seconds: float) -> None:
        """Whatever machines do by themselves, and users now and then."""
        a = tables.attempts.c
        async with self.world.engine.connect() as conn:
            rows = await conn.execute(
                select(a.id, a.job_id, a.vm_ids).where(a.state.in_(ATTEMPT_WITH_NODES))
            )
            row_list = list(rows)
        heartbeats = [
            self._speak(self.lives[r.job_id], r.id, vm) for r in row_list for vm in r.vm_ids
        ]
        await asyncio.gather(*heartbeats)
        for row in row_list:
            await self._train(self.lives[row.job_id], row.vm_ids, seconds)
        if self.draw.random() < 0.02:
            await self._raise()

    async def _speak(self, life: Life, attempt_id: str, vm_id: str) -> None:
        now = self.world.clock()
        node = self.nodes.setdefault(vm_id, Node(vm_id, now + life.boots))
        if now < node.boots_until or not (node.node_id or await self._register(node, attempt_id)):
            return
        order = await self.hearing.find_directive(node.node_id, _ANY)
        assert order is not None, "it has registered"
        if order.is_attempt_over:  # an outage or an eviction was told to somebody before
            return
        self._obey(life, node, order.kind, order.number)
        node.seq += 1
        step = min(int(life.done), _STEPS)
        measured = (metrics(step),) if step and node.phase is NodePhase.RUNNING else ()
        heartbeat = Heartbeat(
            epoch=node.epoch,
            seq=node.seq,
            phase=node.phase,
            generation=node.generation,
            step=step,
            free_port=29500,
            metrics=measured,
        )
        await self.hearing.record(node.node_id, heartbeat, now)

    async def _register(self, node: Node, attempt_id: str) -> bool:
        """Register the machine; return False while the service does not see it yet."""
        message = registration(attempt_id, node.vm_id)
        seat = await self.registering.register(message, self.world.clock())
        if seat is not None:
            node.node_id, node.epoch = seat.node.node_id, seat.node.epoch
        return seat is not None

    def _obey(self, life: Life, node: Node, kind: DirectiveKind, number: int) -> None:
        now = self.world.clock()
        if kind is not node.directive_kind or number != node.generation:
            node.directed_at = now
        node.directive_kind = kind
        assert node.directed_at is not None or kind is DirectiveKind.CARRY_ON
        silence = now - (node.directed_at or now)
        if kind is DirectiveKind.START:
            node.phase, node.generation = NodePhase.RUNNING, number
        elif node.phase is NodePhase.RUNNING and not life.deaf:
            saves = kind is DirectiveKind.CHECKPOINT_AND_STOP
            if silence >= timedelta(seconds=life.seconds_to_save if saves else 10):
                node.phase = NodePhase.STOPPED
                life.kept = int(life.done) if saves else life.kept

    async def _train(self, life: Life, vm_ids: list[str], seconds: float) -> None:
        """All together, or none; saved when they stop, and at the end."""
        members = [self.nodes[v] for v in vm_ids if v in self.nodes]
        if len(members) < life.nodes:
            life.done = float(life.kept)
            return
        if all(n.phase is NodePhase.RUNNING for n in members):
            life.done = min(life.done + seconds / life.seconds_per_step, _STEPS)
        elif all(n.phase is NodePhase.STOPPED for n in members):
            life.done = float(life.kept)
        if life.done >= _STEPS and all(n.phase is NodePhase.RUNNING for n in members):
            await self._finish(life, members)

    async def _finish(self, life: Life, members: list[Node]) -> None:
        for node in members:
            node.phase = NodePhase.FINISHED
        entry = committed(_STEPS, members[0].generation, "final")
        await put_files(self.world.store, life.id, entry.path)
        await commit(self.world, life.id, entry)

    async def _raise(self) -> None:
        """Raise the budget of one of the jobs, as its user."""
        job_life = self.draw.choice(list(self.lives.values()))
        cap = job_life.cap * 2
        change = {"infrastructure": {"budget": {"amount": str(cap)}}}
        path = f"/v1/fine_tuning/jobs/{job_life.id}"
        if (await self.world.call("PATCH", path, json=change)).status_code == 200:
            job_life.cap = cap

    async def _all_over(self) -> bool:
        """Whether every job has ended for good, with all machines seen to be gone."""
        states = await self.over()
        return states["left"] == 0 and states.keys() <= {"left", *map(str, JOB_TERMINAL)}

    async def over(self) -> dict[str, int]:
        """How many jobs are in which state, and how many attempts are not seen to be gone."""
        j, a = tables.jobs.c, tables.attempts.c
        async with self.world.engine.connect() as conn:
            states = (await conn.execute(select(j.state))).scalars().all()
            remaining = (
                await conn.execute(select(a.id).where(a.state != AttemptState.ENDED))
            ).all()
        return {s: states.count(s) for s in set(states)} | {"left": len(remaining)}

    async def count_reported(self) -> dict[str, int]:
        """How many jobs were stopped for want of money, and were told that a cap was passed."""
        e = tables.events.c
        query = select(e.code, func.count(e.job_id.distinct())).group_by(e.code)
        async with self.world.engine.connect() as conn:
            by_id = {row[0]: row[1] for row in await conn.execute(query)}
        return {name: by_id.get(f"job.budget_{name}", 0) for name in ("exhausted", "passed")}
