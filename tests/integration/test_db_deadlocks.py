"""Everybody writes at once, late workers too: nobody waits for somebody who waits for them.

Locks are taken in one order everywhere: nodes (by id), what was measured, attempts (by id), jobs.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from random import Random

import pytest
from psycopg.errors import DeadlockDetected
from sqlalchemy import Table, select, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.db import (
    attempt_moves,
    attempts,
    generations,
    jobs,
    leases,
    ledger,
    tables,
    wishes,
)
from service.db import metrics as measured_rows
from service.db import nodes as node_rows
from service.db.attempt_moves import Moving
from service.db.attempts import AttemptRow
from service.db.engine import make_engine
from service.db.leases import LEASE, Claim
from service.db.ledger import Exist
from service.db.wishes import Told, Wish
from service.domain.attempt import Move, OpenGeneration
from service.domain.errors import LeaseLost
from service.domain.findings import Fault
from service.domain.generation import Halt
from service.domain.node import view
from service.domain.states import AttemptState, Outcome
from service.operations import findings, heads, news
from service.operations import generations as generation_operations
from service.operations import nodes as node_operations
from service.operations.generations import Halting, Opening
from service.operations.registrations import (
    Asks,
    Other,
    Registering,
    register_again,
    register_all,
)
from tests import waiting
from tests.clock import Clock
from tests.integration.rows import add_attempt, add_job, add_node, blocked, checkpoint, transact
from tests.scripted_node import metrics
from trainer.contract import (
    PROTOCOL,
    DirectiveKind,
    EvictionNotice,
    Head,
    Heartbeat,
    NodePhase,
    Registration,
)

ACTORS = 12
ROUNDS = 40
_REGISTRATION = Registration(
    protocol=PROTOCOL,
    attempt_id="att-2",
    vm_id="",
    boot_id="",
    name="x",
    address="10.0.0.4",
    gpus=8,
)
_STOPS = (DirectiveKind.STOP, DirectiveKind.CHECKPOINT_AND_STOP)
_EVICTED = Move(to=AttemptState.TERMINATING, outcome=Outcome.EVICTED, reason="taken")
_NOTICE = Heartbeat(
    epoch=1,
    seq=2,
    phase=NodePhase.RUNNING,
    generation=0,
    step=0,
    free_port=29500,
    eviction=EvictionNotice(event_id="e", not_before=0.0, seen_at=0.0),
)
VMS = ("vm-1", "vm-2", "vm-3", "vm-4")


@pytest.fixture
async def crowd(database_url: str) -> AsyncIterator[AsyncEngine]:
    """A connection for each actor; a deadlock is noticed at once and not after a second."""
    engine = make_engine(f"{database_url}&options=-c%20deadlock_timeout%3D50ms", pool_size=ACTORS)
    yield engine
    await engine.dispose()


@dataclass
class Crowd:
    """One job with a dying and a living attempt, and all that may be done to it."""

    engine: AsyncEngine
    clock: Clock
    rng: Random = field(default_factory=lambda: Random(11))
    claims: list[tuple[Claim, AttemptRow]] = field(default_factory=list)  # lost ones among them
    seq: int = 0
    done: int = 0

    async def act(self) -> None:
        """One transaction of anybody's."""
        deeds: list[Callable[[AsyncConnection], Awaitable[None]]] = [
            self._heartbeat,
            self._heartbeat,
            self._register,
            self._look,
            self._halt,
            self._open,
            self._wish,
            self._job,
        ]
        await self._claim()
        with suppress(LeaseLost):
            async with self.engine.begin() as conn:
                await self.rng.choice(deeds)(conn)
                self.done += 1

    async def _register(self, conn: AsyncConnection) -> None:
        vm_id, boot_id = self.rng.choice(VMS), self.rng.choice(("boot-1", "boot-2"))
        registration = replace(_REGISTRATION, vm_id=vm_id, boot_id=boot_id)
        (answer,) = await register_all(conn, [Asks(registration, self.clock())])
        if answer is Other.KNOWN:
            await register_again(conn, registration, self.clock())

    async def _heartbeat(self, conn: AsyncConnection) -> None:
        known = await node_rows.of_attempt(conn, "att-2")
        if not known:
            return
        node = self.rng.choice(known)
        self.seq += 1
        steps = self.rng.sample(range(1, 30), k=25)
        notice = EvictionNotice(event_id="e", not_before=0.0, seen_at=0.0)
        beat = Heartbeat(
            epoch=node.epoch,
            seq=self.seq,
            phase=self.rng.choice((NodePhase.RUNNING, NodePhase.STOPPED, NodePhase.FAILED)),
            generation=node.directive_number,
            step=self.rng.randrange(9),
            free_port=29500,
            metrics=tuple(metrics(s) for s in steps),
            committed=(checkpoint(1),),
            eviction=notice if self.rng.random() < 0.2 else None,
        )
        await node_operations.hear(conn, node.node_id, beat, self.clock())

    async def _claim(self) -> None:
        """What is due, in a transaction of its own; sometimes leases have expired by then."""
        self.clock.advance(seconds=self.rng.choice((0, 1, LEASE.total_seconds())))
        async with self.engine.begin() as conn:
            self.claims += await attempts.claim_due(conn, self.clock(), 2)

    def _claimed(self) -> tuple[Claim, AttemptRow]:
        """A claim that somebody holds, or has lost by now."""
        return self.rng.choice(self.claims[-3:])

    async def _look(self, conn: AsyncConnection) -> None:
        claim, row = self._claimed()
        await leases.write(conn, claim, vm_ids=list(VMS))
        seen, now = self.rng.sample(VMS, k=3), self.clock()
        exist = Exist(job_id="job", attempt_id=row.id, vm_ids=seen, price=row.price, since=now)
        await ledger.meter(conn, [exist], now)
        step = self.rng.randrange(50)
        head = Head(generation=1, checkpoints=(checkpoint(step), checkpoint(step + 1)))
        await heads.record(conn, "job", head, self.clock())

    async def _halt(self, conn: AsyncConnection) -> None:
        claim, row = self._claimed()
        opened = await generations.current(conn, row.id)
        if opened:
            ids = tuple(m.node_id for m in opened.generation.members)
            step = Halt(kind=self.rng.choice(_STOPS), node_ids=ids, reason="because")
            halting = Halting(claim=claim, row=row, generation=opened.generation, step=step)
            await generation_operations.halt_all(conn, [halting], self.clock())

    async def _open(self, conn: AsyncConnection) -> None:
        claim, row = self._claimed()
        known = await node_rows.of_attempt(conn, row.id)
        if known:
            self.rng.shuffle(known)
            step = OpenGeneration(
                nodes=tuple(view(n, present=True) for n in known), after_error=True
            )
            before = await generations.newest(conn, "job")
            head = Head(generation=before.number + 1 if before else 1)
            opening = Opening(claim=claim, row=row, step=step, head=head, run_spec_sha256="")
            await generation_operations.open_all(conn, [opening], self.clock())

    async def _wish(self, conn: AsyncConnection) -> None:
        told = Told(code="job.pause_requested", message="Pause was asked for", data={})
        back = self.rng.random() < 0.5
        await wishes.write(conn, "p-job", "job", self.clock(), Wish.PAUSE, told, back=back)

    async def _job(self, conn: AsyncConnection) -> None:
        for claim, _ in await jobs.claim_due(conn, self.clock(), 2):
            await leases.release(conn, claim, self.clock(), self.clock())


async def test_whatever_is_done_at_once_nobody_waits_in_a_circle(
    crowd: AsyncEngine, clock: Clock
) -> None:
    async with crowd.begin() as conn:
        await add_job(conn, clock(), state="running")
        over = {"state": "terminating", "outcome": "evicted"}
        await add_attempt(conn, clock(), **over)
        await add_attempt(conn, clock(), id="att-2", number=2, vm_ids=list(VMS))
    everybody = Crowd(crowd, clock)
    faults: list[DBAPIError] = []

    async def actor() -> None:
        for _ in range(ROUNDS):
            try:
                await everybody.act()
            except DBAPIError as fault:
                faults.append(fault)

    await asyncio.gather(*(actor() for _ in range(ACTORS)))

    deadlocks = [f for f in faults if isinstance(f.orig, DeadlockDetected)]
    assert deadlocks == []
    assert faults == []
    assert everybody.done > ACTORS * ROUNDS / 2


async def test_two_boots_that_register_a_machine_at_once_are_told_apart(
    crowd: AsyncEngine, clock: Clock
) -> None:
    machines = [f"vm-{n}" for n in range(20)]
    async with crowd.begin() as conn:
        await add_job(conn, clock(), state="running")
        await add_attempt(conn, clock(), vm_ids=machines)

    replicas, rng = [Registering(crowd) for _ in range(2)], Random(5)

    async def register(vm_id: str, boot_id: str) -> int:
        message = replace(_REGISTRATION, attempt_id="att-1", vm_id=vm_id, boot_id=boot_id)
        standing = await rng.choice(replicas).register(message, clock())
        assert standing is not None
        return standing.node.epoch

    for vm_id in machines:
        epochs = await asyncio.gather(*(register(vm_id, f"boot-{n}") for n in range(3)))

        assert sorted(epochs) == [1, 2, 3]


MANY = 9


async def test_what_many_nodes_tell_and_what_many_attempts_do_never_wait_in_a_circle(
    crowd: AsyncEngine, clock: Clock
) -> None:
    said, moving = {}, []
    async with crowd.begin() as conn:
        for n in range(MANY):
            await add_job(conn, clock(), id=f"job-{n}", state="running")
            await add_attempt(conn, clock(), id=f"att-{n}", job_id=f"job-{n}")
            node = await add_node(conn, clock(), "vm", f"att-{n}")
            said[node.node_id] = _NOTICE
        for claim, row in await attempts.claim_due(conn, clock(), MANY):
            moving.append(Moving(claim=claim, row=row, step=_EVICTED))
    there, back = dict(sorted(said.items())), dict(sorted(said.items(), reverse=True))
    moving.sort(key=lambda one: one.row.id)
    deeds: list[Callable[[AsyncConnection], Awaitable[object]]] = [
        lambda conn: news.hear_all(conn, there, clock()),
        lambda conn: news.hear_all(conn, back, clock()),
        lambda conn: attempt_moves.move_all(conn, moving, clock()),
        lambda conn: attempt_moves.move_all(conn, moving[::-1], clock()),
    ]
    for table in (tables.attempts, tables.jobs):
        async with crowd.begin() as conn:
            values = {"lease_token": moving[0].claim.token, "state": "running", "outcome": None}
            await conn.execute(update(tables.attempts).values(values))
            await conn.execute(update(tables.nodes).values(heartbeat_seq=0, evicting=False))
        async with crowd.begin() as conn:  # who locks in another order holds what others want
            middle = table.c.id.like(f"%-{MANY // 2}")
            await conn.execute(select(table.c.id).where(middle).with_for_update())
            doing = [asyncio.create_task(transact(crowd, deed)) for deed in deeds]
            await waiting.until(partial(blocked, crowd), lambda count: count >= 2)
        await asyncio.gather(*doing)  # raises where one met a deadlock

        async with crowd.connect() as conn:
            states = await conn.execute(select(tables.attempts.c.state))
            warned = await conn.execute(select(tables.nodes.c.evicting))
            assert set(states.scalars()) == {"terminating"}
            assert set(warned.scalars()) == {True}


@pytest.mark.parametrize("table", [tables.attempts, tables.jobs], ids=str)
async def test_who_writes_a_row_to_which_others_refer_does_not_wait_at_its_older_version(
    crowd: AsyncEngine, clock: Clock, table: Table
) -> None:
    """Two write rows that a third has changed meanwhile, while a fourth adds rows to them.

    Within one statement the first has the newest version, and waits at the older one behind the
    second, which waits for the newest.
    """
    async with crowd.begin() as conn:
        for n in (1, 2):
            await add_job(conn, clock(), id=f"job-{n}", state="running")
            await add_attempt(conn, clock(), id=f"att-{n}", job_id=f"job-{n}")
    ids = {tables.attempts: ["att-1", "att-2"], tables.jobs: ["job-1", "job-2"]}[table]
    far = table.c.due_at + timedelta(days=1)

    async def hint(conn: AsyncConnection) -> None:
        await leases.hint_all(conn, table, ids, clock())

    async with crowd.connect() as fourth, fourth.begin():
        await add_node(fourth, clock(), "vm-1", "att-1")
        over = {"state": "terminating", "outcome": "evicted"}
        await add_attempt(fourth, clock(), id="att-3", job_id="job-1", number=2, **over)
        async with crowd.begin() as third:
            await third.execute(update(table).where(table.c.id == ids[0]).values(due_at=far))
            writing = [asyncio.create_task(transact(crowd, hint)) for _ in range(2)]
            await waiting.until(partial(blocked, crowd), lambda count: count == 2)
        await asyncio.gather(*writing)  # raises where one met a deadlock

    async with crowd.connect() as conn:
        hints = await conn.execute(select(table.c.hints).where(table.c.id.in_(ids)))
        assert list(hints.scalars()) == [2, 2]


async def test_what_was_measured_is_locked_before_attempts_and_jobs_by_whoever_tells_of_it(
    engine: AsyncEngine, clock: Clock
) -> None:
    """Else who keeps a heartbeat's steps, and then its job's progress, waits for who waits."""
    async with engine.begin() as conn:
        await add_job(conn, clock(), state="running")
        await add_attempt(conn, clock())
        node = await add_node(conn, clock(), "vm-1")
        await measured_rows.add(conn, "job", 0, [metrics(1)])
    told = replace(_NOTICE, metrics=(metrics(1),))

    async with engine.connect() as another, another.begin():
        await another.execute(update(tables.metrics).values(loss=1.0))
        telling = asyncio.create_task(
            transact(engine, lambda conn: news.hear_all(conn, {node.node_id: told}, clock()))
        )
        await waiting.until(lambda: blocked(engine), lambda many: many == 1)
        free = [  # raises where who waits has it locked already
            (await another.execute(select(table.c.id).with_for_update(nowait=True, key_share=True)))
            .scalars()
            .all()
            for table in (tables.attempts, tables.jobs)
        ]
    await telling

    assert free == [["att-1"], ["job"]]


async def test_a_crowd_does_not_wait_for_a_row_that_is_anothers_by_now(
    crowd: AsyncEngine, clock: Clock
) -> None:
    async with crowd.begin() as conn:
        for n in (1, 2):
            await add_job(conn, clock(), id=f"job-{n}", state="running")
            await add_attempt(conn, clock(), id=f"att-{n}", job_id=f"job-{n}")
        claims = await attempts.claim_due(conn, clock(), 2)
    mine = [(claim, clock()) for claim, _ in claims]
    lost = tables.attempts.c.id == "att-2"
    taken = update(tables.attempts).where(lost).values(lease_token="another's")
    async with crowd.begin() as conn:
        await conn.execute(taken)

    async with crowd.begin() as another:
        await another.execute(taken)
        async with crowd.begin() as conn, asyncio.timeout(5):
            released = await leases.release_all(conn, mine, clock())

    assert released == {"att-1"}


async def _tell_of_head(
    conn: AsyncConnection, claim: Claim, row: AttemptRow, now: datetime
) -> None:
    head = Head(generation=1, checkpoints=(checkpoint(2), checkpoint(1)))
    assert await heads.record(conn, claim.row.job_id, head, now)


async def _give_up(conn: AsyncConnection, claim: Claim, row: AttemptRow, now: datetime) -> None:
    broken = [(checkpoint(1), Fault(file="a", reason="is gone"))]
    assert await findings.give_up(conn, claim, row, broken, None, now)


@pytest.mark.parametrize("tell", [_tell_of_head, _give_up])
async def test_a_job_is_locked_before_its_checkpoints(
    engine: AsyncEngine,
    clock: Clock,
    tell: Callable[[AsyncConnection, Claim, AttemptRow, datetime], Awaitable[None]],
) -> None:
    """Else who holds the job, and copies HEAD, waits for who waits."""
    async with engine.begin() as conn:
        await add_job(conn, clock(), state="running")
        await add_attempt(conn, clock())
        known = Head(generation=1, checkpoints=(checkpoint(1), checkpoint(0)))
        await heads.record(conn, "job", known, clock())
        ((claim, row),) = await attempts.claim_due(conn, clock(), 1)

    async with engine.connect() as another, another.begin():
        await another.execute(select(tables.jobs.c.id).with_for_update(key_share=True))
        telling = asyncio.create_task(
            transact(engine, lambda conn: tell(conn, claim, row, clock()))
        )
        await waiting.until(lambda: blocked(engine), lambda many: many == 1)
        free = select(tables.checkpoints.c.step).with_for_update(nowait=True)
        steps = (await another.execute(free)).scalars().all()  # raises where one is locked already
    await telling

    assert sorted(steps) == [0, 1]
