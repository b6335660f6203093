"""The service is killed after each effect of a whole life in turn; each life ends the same."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from service.db.attempts import attempts as attempt_rows
from service.db.attempts import nodes as node_rows
from service.db.attempts.attempts import AttemptRow
from service.db.core.leases import LEASE
from service.db.money import ledger
from service.db.schema.tables import events, generations, jobs
from service.domain.cloud.fleet import scale_set_name
from service.domain.lifecycle.attempt import AttemptTiming
from service.domain.lifecycle.node import NodeRecord
from service.domain.states import ATTEMPT_OVER, AttemptState, JobState, Outcome
from service.operations import heads, heartbeats
from service.operations.registrations import RegistrationBatcher
from service.reconciler.attempts import AttemptReconciler
from service.reconciler.jobs import JobReconciler
from tests.integration.killable import (
    KillableCloud,
    KillableEngine,
    KillableStore,
    Killed,
    Reaper,
)
from tests.scripted_node import commit, committed
from tests.world import World
from trainer.contract import (
    PROTOCOL,
    DirectiveKind,
    Heartbeat,
    NodePhase,
    Registration,
)

ROUNDS = 100
ROUND = timedelta(seconds=10)
PACE = AttemptTiming(poll=timedelta(seconds=5), read_lag=timedelta(seconds=20))


@dataclass
class Life:
    """One job, from its first reconciliation to the end of its last machine."""

    world: World
    cloud: KillableCloud
    job_id: str
    reaper: Reaper
    attempts: AttemptReconciler = field(init=False)
    jobs: JobReconciler = field(init=False)

    def __post_init__(self) -> None:
        """Start the service."""
        self.restart(self.reaper)

    def restart(self, reaper: Reaper) -> None:
        """A fresh process: nothing of the one before is left but what is outside."""
        self.reaper = self.cloud.reaper = reaper
        engine = KillableEngine(self.world.engine, reaper)
        store = KillableStore(shared=self.world.store, reaper=reaper)
        self.attempts = replace(
            self.world.attempts, engine=engine, cloud=self.cloud, store=store, pace=PACE
        )
        prepare = replace(self.world.jobs.preparation, engine=engine, store=store)
        self.jobs = replace(self.world.jobs, engine=engine, preparation=prepare)

    async def run(self) -> None:
        """Until the job has succeeded and everything is gone."""
        for _ in range(ROUNDS):
            self.world.clock.advance(seconds=ROUND.total_seconds())
            try:
                await self.jobs.run_once()
                await self.attempts.run_once()
            except Killed:
                await _those_beside_it_die()
                self.restart(Reaper())
                self.world.clock.advance(seconds=LEASE.total_seconds() + 1)
            if await self._machines_turn():
                return
        raise AssertionError(f"no end: {await self.story()}")

    async def story(self) -> dict[str, Any]:
        """What is to be the same, wherever the service was killed."""
        async with self.world.engine.connect() as conn:
            rows = await attempt_rows.of_job(conn, self.job_id)
            job = (await conn.execute(select(jobs).where(jobs.c.id == self.job_id))).one()
            numbers = select(generations.c.number).where(generations.c.job_id == self.job_id)
            codes = select(events.c.code).where(events.c.job_id == self.job_id)
            uncounted = events.c.code != "plan.counted"
            costs = await ledger.of_job(conn, self.job_id)
            head, _ = await heads.read(self.world.store, self.job_id)
            return {
                "job": (job.state, job.result["step"] if job.result else None),
                "attempts": [(r.number, r.state, r.outcome) for r in rows],
                "scale sets": Counter(self.cloud.created)
                == Counter(scale_set_name(r.id) for r in rows),
                "left": self.cloud.costing(),
                "generations": sorted((await conn.execute(numbers)).scalars()),
                "head": (head.generation, [c.step for c in head.checkpoints]),
                "cost rows": (len(costs), len({r.vm_id for r in costs})),
                "open cost rows": [r for r in costs if r.ended_at is None],
                # The first life counts the rows; what it found is kept for all others.
                "events": Counter((await conn.execute(codes.where(uncounted))).scalars()),
            }

    async def _machines_turn(self) -> bool:
        """Nodes register, obey and train; True once there is nothing left to do."""
        async with self.world.engine.connect() as conn:
            rows = await attempt_rows.of_job(conn, self.job_id)
        for row in rows:
            if row.state not in ATTEMPT_OVER:
                await self._nodes_turn(row)
        done = len(rows) == 2 and all(r.state is AttemptState.ENDED for r in rows)
        async with self.world.engine.connect() as conn:
            state = select(jobs.c.state).where(jobs.c.id == self.job_id)
            return done and (await conn.execute(state)).scalar_one() == JobState.SUCCEEDED

    async def _nodes_turn(self, row: AttemptRow) -> None:
        running = set(row.vm_ids) & self._machines(row)
        async with self.world.engine.connect() as conn:
            known = await node_rows.of_attempt(conn, row.id)
        for vm_id in sorted(running - {n.vm_id for n in known}):
            await self._register(row, vm_id)
        for node in known:
            if node.vm_id in running:
                await self._obey(node, row)
        if row.state is AttemptState.RUNNING:
            await self._train(row, known)

    def _machines(self, row: AttemptRow) -> set[str]:
        entry = self.cloud._entries.get(scale_set_name(row.id))
        return {i.vm_id for i in entry.instances.values()} if entry else set()

    async def _register(self, row: AttemptRow, vm_id: str) -> None:
        message = Registration(
            protocol=PROTOCOL,
            attempt_id=row.id,
            vm_id=vm_id,
            boot_id="boot-1",
            name=vm_id,
            address="10.0.0.4",
            gpus=8,
        )
        seat = await RegistrationBatcher(self.world.engine).register(message, self.world.clock())
        assert seat is not None
        await self._say(seat.node, NodePhase.READY, 0, 0)

    async def _obey(self, node: NodeRecord, row: AttemptRow) -> None:
        number = node.directive_number
        if node.directive_kind is DirectiveKind.CARRY_ON:
            return
        start = node.directive_kind is DirectiveKind.START
        if start and node.generation < number:
            await self._say(node, NodePhase.RUNNING, number, row.number)
        if not start and node.phase is NodePhase.RUNNING:
            await self._say(node, NodePhase.STOPPED, number, node.step)

    async def _train(self, row: AttemptRow, nodes: list[NodeRecord]) -> None:
        """The first attempt commits a checkpoint and loses a machine; the second one finishes."""
        head, _ = await heads.read(self.world.store, self.job_id)
        if row.number == 1 and not head.checkpoints:
            await commit(self.world, self.job_id, committed(1, 1))
            self.cloud.evict(scale_set_name(row.id), "1")
        if row.number == 2 and head.model is None:
            await commit(self.world, self.job_id, committed(2, 2, "final"))
            for node in nodes:
                await self._say(node, NodePhase.FINISHED, 2, 2)

    async def _say(self, node: NodeRecord, phase: NodePhase, generation: int, step: int) -> None:
        beat = Heartbeat(
            epoch=node.epoch,
            seq=node.heartbeat_seq + 1,
            phase=phase,
            generation=generation,
            step=step,
            free_port=29500,
        )
        async with self.world.engine.begin() as conn:
            await heartbeats.record_heartbeats(conn, {node.node_id: beat}, self.world.clock())


async def _those_beside_it_die() -> None:
    """A process has many tasks; wait until the last of them has come to its end."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*others, return_exceptions=True)


async def _live(world: World, lifetime: int | None) -> Life:
    job = await world.submit()
    cloud = KillableCloud(
        now=world.clock,
        create_time=timedelta(seconds=10),
        delete_time=timedelta(seconds=10),
        visible_after=timedelta(seconds=5),
    )
    life = Life(world, cloud, job["id"], Reaper(lifetime))
    await life.run()
    return life


@pytest.mark.long  # a whole life for each of its points
@pytest.mark.timeout(300)
async def test_a_life_ends_the_same_wherever_the_service_is_killed(world: World) -> None:
    undisturbed = await _live(world, None)
    effects = undisturbed.reaper.effects
    told = await undisturbed.story()
    assert told["attempts"] == [
        (1, AttemptState.ENDED, Outcome.EVICTED),
        (2, AttemptState.ENDED, Outcome.SUCCEEDED),
    ]
    assert told["scale sets"]
    assert told["left"] == set()
    assert told["generations"] == [1, 2]
    assert told["cost rows"] == (4, 4)
    assert told["open cost rows"] == []

    for lifetime in range(1, len(effects) + 1):
        life = await _live(world, lifetime)
        assert await life.story() == told, f"killed after effect {lifetime} of {effects}"
