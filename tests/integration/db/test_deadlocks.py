"""Everybody writes at once, late workers too: nobody waits for somebody who waits for them.

Locks are taken in one order everywhere: nodes (by id), what was measured, attempts (by id), jobs.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random

from psycopg.errors import DeadlockDetected
from sqlalchemy import select, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.db.attempts import attempt_moves, attempts, generations
from service.db.attempts import nodes as node_rows
from service.db.attempts.attempt_moves import ClaimedAttemptMove
from service.db.attempts.attempts import AttemptRow
from service.db.core import leases
from service.db.core.leases import LEASE, Claim
from service.db.jobs import events, jobs
from service.db.money import ledger
from service.db.money.ledger import ExistingMachines
from service.db.schema import tables
from service.domain.errors import LeaseLost
from service.domain.lifecycle.attempt import MoveAttempt, OpenGeneration
from service.domain.lifecycle.generation import HaltGeneration
from service.domain.lifecycle.node import node_view
from service.domain.states import AttemptState, Outcome
from service.operations.attempts import generations as generation_operations
from service.operations.attempts import heads
from service.operations.attempts.generations import Halting, Opening
from service.operations.nodes import heartbeats
from service.operations.nodes.registrations import (
    PendingRegistration,
    RegistrationBatcher,
    RegistrationOutcome,
    register_all,
    register_known_machine,
)
from tests import waiting
from tests.clock import Clock
from tests.integration.db.rows import (
    NOTICE,
    add_attempt,
    add_job,
    add_node,
    blocked,
    checkpoint,
    registration,
    transact,
)
from tests.nodes.scripted_node import metrics
from trainer.contract import (
    DirectiveKind,
    EvictionNotice,
    Head,
    Heartbeat,
    NodePhase,
)

ACTORS = 12
ROUNDS = 40
_STOPS = (DirectiveKind.STOP, DirectiveKind.CHECKPOINT_AND_STOP)
_EVICTED = MoveAttempt(to=AttemptState.TERMINATING, outcome=Outcome.EVICTED, reason="taken")
VMS = ("vm-1", "vm-2", "vm-3", "vm-4")


@dataclass
class Batch:
    """One job with a dying and a living attempt, and all that may be done to it."""

    engine: AsyncEngine
    clock: Clock
    rng: Random = field(default_factory=lambda: Random(11))
    claims: list[tuple[Claim, AttemptRow]] = field(default_factory=list)  # lost ones among them
    seq: int = 0
    done: int = 0

    async def act(self) -> None:
        """One transaction of anybody's."""
        operations: list[Callable[[AsyncConnection], Awaitable[None]]] = [
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
                await self.rng.choice(operations)(conn)
                self.done += 1

    async def _register(self, conn: AsyncConnection) -> None:
        vm_id, boot_id = self.rng.choice(VMS), self.rng.choice(("boot-1", "boot-2"))
        message = registration("att-2", vm_id, boot_id)
        (outcome,) = await register_all(conn, [PendingRegistration(message, self.clock())])
        if outcome is RegistrationOutcome.KNOWN:
            await register_known_machine(conn, message, self.clock())

    async def _heartbeat(self, conn: AsyncConnection) -> None:
        known_nodes = await node_rows.of_attempt(conn, "att-2")
        if not known_nodes:
            return
        node = self.rng.choice(known_nodes)
        self.seq += 1
        steps = self.rng.sample(range(1, 30), k=25)
        notice = EvictionNotice(event_id="e", not_before=0.0, seen_at=0.0)
        heartbeat = Heartbeat(
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
        await heartbeats.record_heartbeats(conn, {node.node_id: heartbeat}, self.clock())

    async def _claim(self) -> None:
        """Claim due rows in a transaction of its own, sometimes after leases have expired."""
        self.clock.advance(seconds=self.rng.choice((0, 1, LEASE.total_seconds())))
        async with self.engine.begin() as conn:
            self.claims += await attempts.claim_due(conn, self.clock(), 2)

    def _claimed(self) -> tuple[Claim, AttemptRow]:
        """Return a claim that somebody holds, or has lost by now."""
        return self.rng.choice(self.claims[-3:])

    async def _look(self, conn: AsyncConnection) -> None:
        claim, row = self._claimed()
        await leases.write(conn, claim, vm_ids=list(VMS))
        vm_ids, now = self.rng.sample(VMS, k=3), self.clock()
        exist = ExistingMachines(
            job_id="job", attempt_id=row.id, vm_ids=vm_ids, price=row.price, since=now
        )
        await ledger.meter(conn, [exist], now)
        step = self.rng.randrange(50)
        head = Head(generation=1, checkpoints=(checkpoint(step), checkpoint(step + 1)))
        await heads.record(conn, "job", head, self.clock())

    async def _halt(self, conn: AsyncConnection) -> None:
        claim, row = self._claimed()
        generation = await generations.current(conn, row.id)
        if generation:
            ids = tuple(m.node_id for m in generation.generation.members)
            step = HaltGeneration(kind=self.rng.choice(_STOPS), node_ids=ids, reason="because")
            halting = Halting(claim=claim, row=row, generation=generation.generation, step=step)
            await generation_operations.halt_all(conn, [halting], self.clock())

    async def _open(self, conn: AsyncConnection) -> None:
        claim, row = self._claimed()
        known_nodes = await node_rows.of_attempt(conn, row.id)
        if known_nodes:
            self.rng.shuffle(known_nodes)
            step = OpenGeneration(
                nodes=tuple(node_view(n, present=True) for n in known_nodes), after_error=True
            )
            before = await generations.newest(conn, "job")
            head = Head(generation=before.number + 1 if before else 1)
            opening = Opening(claim=claim, row=row, step=step, head=head, run_spec_sha256="")
            await generation_operations.open_all(conn, [opening], self.clock())

    async def _wish(self, conn: AsyncConnection) -> None:
        now, clear = self.clock(), self.rng.random() < 0.5
        requested = await jobs.request_once(
            conn, "p-job", "job", now, "pause_requested_at", clear=clear
        )
        if requested:
            await events.add(conn, "job", now, "job.pause_requested", "Pause was asked for")

    async def _job(self, conn: AsyncConnection) -> None:
        for claim, _ in await jobs.claim_due(conn, self.clock(), 2):
            await leases.release(conn, claim, self.clock(), self.clock())


async def test_concurrent_operations_on_a_job_do_not_deadlock(
    batch: AsyncEngine, clock: Clock
) -> None:
    async with batch.begin() as conn:
        await add_job(conn, clock(), state="running")
        ended_values = {"state": "terminating", "outcome": "evicted"}
        await add_attempt(conn, clock(), **ended_values)
        await add_attempt(conn, clock(), id="att-2", number=2, vm_ids=list(VMS))
    everybody = Batch(batch, clock)
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


async def test_two_boots_that_register_a_machine_at_once_get_different_epochs(
    batch: AsyncEngine, clock: Clock
) -> None:
    machines = [f"vm-{n}" for n in range(20)]
    async with batch.begin() as conn:
        await add_job(conn, clock(), state="running")
        await add_attempt(conn, clock(), vm_ids=machines)

    replicas, rng = [RegistrationBatcher(batch) for _ in range(2)], Random(5)

    async def register(vm_id: str, boot_id: str) -> int:
        message = registration("att-1", vm_id, boot_id)
        standing = await rng.choice(replicas).register(message, clock())
        assert standing is not None
        return standing.node.epoch

    for vm_id in machines:
        epochs = await asyncio.gather(*(register(vm_id, f"boot-{n}") for n in range(3)))

        assert sorted(epochs) == [1, 2, 3]


MANY = 9


async def test_heartbeats_and_moves_of_many_attempts_do_not_deadlock(
    batch: AsyncEngine, clock: Clock
) -> None:
    heartbeats_by_node, moves = {}, []
    async with batch.begin() as conn:
        for n in range(MANY):
            await add_job(conn, clock(), id=f"job-{n}", state="running")
            await add_attempt(conn, clock(), id=f"att-{n}", job_id=f"job-{n}")
            node = await add_node(conn, clock(), "vm", f"att-{n}")
            heartbeats_by_node[node.node_id] = NOTICE
        for claim, row in await attempts.claim_due(conn, clock(), MANY):
            moves.append(ClaimedAttemptMove(claim=claim, row=row, step=_EVICTED))
    ascending = dict(sorted(heartbeats_by_node.items()))
    descending = dict(sorted(heartbeats_by_node.items(), reverse=True))
    moves.sort(key=lambda move: move.row.id)
    operations: list[Callable[[AsyncConnection], Awaitable[object]]] = [
        lambda conn: heartbeats.record_heartbeats(conn, ascending, clock()),
        lambda conn: heartbeats.record_heartbeats(conn, descending, clock()),
        lambda conn: attempt_moves.move_all(conn, moves, clock()),
        lambda conn: attempt_moves.move_all(conn, moves[::-1], clock()),
    ]
    for table in (tables.attempts, tables.jobs):
        async with batch.begin() as conn:
            values = {"lease_token": moves[0].claim.token, "state": "running", "outcome": None}
            await conn.execute(update(tables.attempts).values(values))
            await conn.execute(update(tables.nodes).values(heartbeat_seq=0, evicting=False))
        async with batch.begin() as conn:  # who locks in another order holds what others want
            middle = table.c.id.like(f"%-{MANY // 2}")
            await conn.execute(select(table.c.id).where(middle).with_for_update())
            tasks = [asyncio.create_task(transact(batch, operation)) for operation in operations]
            await waiting.until(partial(blocked, batch), lambda count: count >= 2)
        await asyncio.gather(*tasks)  # raises where one met a deadlock

        async with batch.connect() as conn:
            states = await conn.execute(select(tables.attempts.c.state))
            warned = await conn.execute(select(tables.nodes.c.evicting))
            assert set(states.scalars()) == {"terminating"}
            assert set(warned.scalars()) == {True}
