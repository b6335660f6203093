"""What many attempts, jobs and nodes do at a time: each as it would alone, none for another."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select, update
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from contract.choices import Priority
from service.db.attempts import attempts, generations, nodes
from service.db.attempts.attempt_moves import ClaimedAttemptMove
from service.db.attempts.attempts import AttemptRow
from service.db.core.leases import Claim
from service.db.jobs import events, jobs
from service.db.jobs.job_moves import ClaimedJobMove
from service.db.queue import queue, quotas
from service.db.queue.queue import Gang
from service.db.schema import tables
from service.domain.errors import LeaseLost, NodeNotFound, StaleEpoch
from service.domain.lifecycle.attempt import AttemptView, MoveAttempt, OpenGeneration
from service.domain.lifecycle.generation import HaltGeneration
from service.domain.lifecycle.job import MoveJob
from service.domain.lifecycle.node import node_view
from service.domain.states import AttemptState, JobState, Outcome
from service.operations.attempts.generations import Halting
from service.operations.nodes.heartbeats import HeartbeatBatcher, NodeAnswer
from service.operations.queue import admission
from service.reconciler.attempts.open_generation import GenerationOpener
from service.reconciler.attempts.writes import Writes
from service.storage.fake import MemoryStore
from tests.clock import Clock
from tests.integration.db.rows import add_attempt, add_job, add_node, checkpoint, generation
from tests.scenario.seams import Harm, Hook, HookedEngine
from tests.world import SPOT
from trainer.contract import HEAD, DirectiveKind, EvictionNotice, Head, Heartbeat, NodePhase

SOME = ("1", "2", "3")
EVICTED = MoveAttempt(to=AttemptState.TERMINATING, outcome=Outcome.EVICTED, reason="taken")
GIVE_UP = HaltGeneration(kind=DirectiveKind.STOP, node_ids=(), reason="a machine is gone")
CORES = 96  # of one machine


async def claim_three(
    conn: AsyncConnection, clock: Clock, taken_over: str = "att-2"
) -> list[tuple[Claim, AttemptRow]]:
    """Claimed attempts of three jobs that train; another worker has taken one over."""
    for n in SOME:
        await add_job(conn, clock(), id=f"job-{n}", state="running")
        await add_attempt(conn, clock(), id=f"att-{n}", job_id=f"job-{n}")
    claims = await attempts.claim_due(conn, clock(), 10)
    a = tables.attempts
    await conn.execute(update(a).where(a.c.id == taken_over).values(lease_token="another"))
    return sorted(claims, key=lambda claim: claim[1].id)


async def jobs_with_event(conn: AsyncConnection, code: str) -> set[str]:
    """Return the jobs that have an event of this code."""
    e = tables.events.c
    return set((await conn.execute(select(e.job_id).where(e.code == code))).scalars())


async def test_in_a_batch_only_the_moves_of_lost_leases_are_not_written(
    engine: AsyncEngine, clock: Clock
) -> None:
    async with engine.begin() as conn:
        claims = await claim_three(conn, clock)
    writes = Writes(engine=engine, now=clock)

    late = (replace(claims[0][0], token="an earlier one"), claims[0][1])
    results = await _evict(writes, [*claims, late])

    assert [type(d) for d in results] == [type(None), LeaseLost, type(None), LeaseLost]
    async with engine.connect() as conn:
        rows = {n: await attempts.find(conn, f"att-{n}") for n in SOME}
        assert await jobs_with_event(conn, "attempt.terminating") == {"job-1", "job-3"}
        hinted = await jobs.claim_due(conn, clock(), 10)
    assert [r.state.value for r in rows.values() if r] == ["terminating", "running", "terminating"]
    assert {claim.row_id for claim, _ in hinted} >= {"job-1", "job-3"}


@pytest.mark.parametrize("second_harm", [Harm.FAILS, Harm.LOST, Harm.LATE])
async def test_a_failed_batch_is_repeated_row_by_row_and_writes_each_event_once(
    engine: AsyncEngine, clock: Clock, second_harm: Harm
) -> None:
    async with engine.begin() as conn:
        claims = await claim_three(conn, clock, taken_over="")
    hook = Hook(at=1, harm=Harm.DEADLOCK, second_harm=second_harm)
    struck = Writes(engine=HookedEngine(engine, hook), now=clock)
    sound = Writes(engine=engine, now=clock)
    eviction = asyncio.ensure_future(_evict(struck, claims))

    if second_harm is Harm.LATE:
        await hook.stopped.wait()
        clock.advance(seconds=60)
        async with engine.begin() as conn:
            late_claims = await attempts.claim_due(conn, clock(), 10)
        await _evict(sound, [(c, r) for c, r in late_claims if r.state is AttemptState.RUNNING])
        hook.stalled.clear()
        hook.released.set()
    results = await eviction
    failed_claims = [
        c for c, d in zip(claims, results, strict=True) if isinstance(d, OperationalError)
    ]
    await _evict(sound, failed_claims)

    assert hook.struck
    if second_harm is Harm.LATE:  # the third waited behind the second, beyond its own lease
        assert [type(d) for d in results] == [type(None), LeaseLost, LeaseLost]
    else:
        assert [type(d) for d in results] == [type(None), OperationalError, type(None)]
    async with engine.connect() as conn:
        codes = select(tables.events.c.job_id).where(tables.events.c.code == "attempt.terminating")
        assert sorted((await conn.execute(codes)).scalars()) == [f"job-{n}" for n in SOME]


async def _evict(
    writes: Writes, claims: Iterable[tuple[Claim, AttemptRow]]
) -> list[BaseException | None]:
    moves = (
        writes.move(ClaimedAttemptMove(claim=claim, row=row, step=EVICTED)) for claim, row in claims
    )
    return await asyncio.gather(*moves, return_exceptions=True)


async def test_in_a_batch_only_the_halt_of_a_lost_lease_is_not_written(
    engine: AsyncEngine, clock: Clock
) -> None:
    halts = []
    async with engine.begin() as conn:
        for claim, row in await claim_three(conn, clock):
            node = await add_node(conn, clock(), "vm-1", row.id)
            generation_row = generation(1, [node], row.id)
            generation_row = type(generation_row)(**vars(generation_row) | {"job_id": row.job_id})
            await generations.begin_all(conn, [generation_row], (), clock())
            step = HaltGeneration(
                kind=GIVE_UP.kind, node_ids=(node.node_id,), reason=GIVE_UP.reason
            )
            halts.append(Halting(claim=claim, row=row, generation=generation_row, step=step))
    writes = Writes(engine=engine, now=clock)

    results = await asyncio.gather(*(writes.halt(h) for h in halts), return_exceptions=True)

    assert [type(d) for d in results] == [type(None), LeaseLost, type(None)]
    async with engine.connect() as conn:
        records = await nodes.of_attempts(conn, [f"att-{n}" for n in SOME])
        assert await jobs_with_event(conn, "generation.halted") == {"job-1", "job-3"}
    kinds = [str(records[f"att-{n}"][0].directive_kind) for n in SOME]
    assert kinds == ["stop", "carry_on", "stop"]


async def test_in_a_batch_only_the_generation_of_a_lost_lease_does_not_open(
    engine: AsyncEngine, clock: Clock
) -> None:
    empty_head, saved_head = Head(generation=0), Head(generation=1, checkpoints=(checkpoint(40),))
    async with engine.begin() as conn:
        claims = await claim_three(conn, clock)
        await conn.execute(update(tables.jobs).values(run_spec_sha256="as pinned"))
        nodes_by_attempt = {
            row.id: await add_node(conn, clock(), "vm-" + row.id, row.id) for _, row in claims
        }
        first = [replace(generation(1, [nodes_by_attempt["att-3"]], "att-3"), job_id="job-3")]
        await generations.begin_all(conn, first, (), clock())
        of_third = tables.nodes.c.attempt_id == "att-3"
        await conn.execute(update(tables.nodes).where(of_third).values(generation=1, step=47))
    store = MemoryStore()
    for job_id, head in (("job-1", empty_head), ("job-2", empty_head), ("job-3", saved_head)):
        await store.create_container(job_id)
        await store.write(job_id, HEAD, head.to_json().encode())
    opener = GenerationOpener(engine=engine, store=store, now=clock)

    results = await asyncio.gather(
        *(
            opener.open(
                claim,
                row,
                OpenGeneration(nodes=(node_view(nodes_by_attempt[row.id], present=True),)),
                AttemptView(scale_set=None),
                1 if row.job_id == "job-3" else 0,
            )
            for claim, row in claims
        ),
        return_exceptions=True,
    )

    assert [type(d) for d in results] == [bool, LeaseLost, bool]
    async with engine.connect() as conn:
        rows_by_job = {n: await generations.of_job(conn, f"job-{n}") for n in SOME}
        job = await jobs.find(conn, "job-3")
        assert await jobs_with_event(conn, "generation.opened") == {"job-1", "job-3"}
        assert await jobs_with_event(conn, "checkpoint.committed") == {"job-3"}
    assert {
        n: [o.generation.number for o in rows_of_job] for n, rows_of_job in rows_by_job.items()
    } == {
        "1": [1],
        "2": [],
        "3": [1, 2],
    }
    assert job is not None
    assert (job.lost_steps, job.progress["step"]) == (7, 40)


async def test_in_a_batch_of_jobs_only_the_one_with_a_lost_lease_does_not_move(
    engine: AsyncEngine, clock: Clock
) -> None:
    async with engine.begin() as conn:
        for n in SOME:
            await add_job(conn, clock(), id=f"job-{n}", state="running")
        claims = sorted(await jobs.claim_due(conn, clock(), 10), key=lambda claim: claim[1].id)
        j = tables.jobs
        await conn.execute(update(j).where(j.c.id == "job-2").values(lease_token="another"))
    states = (JobState.RECOVERING, JobState.RECOVERING, JobState.CANCELLED)
    steps = [MoveJob(to=state, reason="why") for state in states]
    writes = Writes(engine=engine, now=clock)

    results = await asyncio.gather(
        *(
            writes.move_job(ClaimedJobMove(claim=claim, job=job, step=step))
            for (claim, job), step in zip(claims, steps, strict=True)
        ),
        return_exceptions=True,
    )

    assert [type(d) for d in results] == [type(None), LeaseLost, type(None)]
    async with engine.connect() as conn:
        rows = [await jobs.find(conn, f"job-{n}") for n in SOME]
        assert await jobs_with_event(conn, "job.recovering") == {"job-1"}
    assert [(r.state.value, r.reason, r.finished_at, r.version) for r in rows if r] == [
        ("recovering", "why", None, 2),
        ("running", "", None, 1),
        ("cancelled", "why", clock(), 2),
    ]


def second_heartbeat(phase: NodePhase, **members: Any) -> Heartbeat:  # noqa: ANN401 - members
    """Return the second heartbeat of a node of generation 1."""
    values = {"epoch": 1, "seq": 2, "generation": 1, "step": 3, "free_port": 29500} | members
    return Heartbeat(phase=phase, **values)


async def test_news_of_many_nodes_are_heard_as_they_are_alone(
    engine: AsyncEngine, clock: Clock
) -> None:
    notice = EvictionNotice(event_id="e", not_before=0.0, seen_at=0.0)
    async with engine.begin() as conn:
        await add_job(conn, clock(), state="running")
        await add_attempt(conn, clock())
        node_records = [await add_node(conn, clock(), f"vm-{n}") for n in SOME]
        await generations.begin_all(conn, [generation(1, node_records)], (), clock())
        (claim, _), = await attempts.claim_due(conn, clock(), 10)  # fmt: skip
    batcher = HeartbeatBatcher(engine)

    first, second, old, *unreached = await asyncio.gather(
        batcher.record(
            node_records[0].node_id, second_heartbeat(NodePhase.RUNNING, eviction=notice), clock()
        ),
        batcher.record(node_records[1].node_id, second_heartbeat(NodePhase.STOPPED), clock()),
        batcher.record(
            node_records[2].node_id, second_heartbeat(NodePhase.RUNNING, epoch=9), clock()
        ),
        batcher.record("node-of-nobody", second_heartbeat(NodePhase.STOPPED), clock()),
        return_exceptions=True,
    )

    assert [type(a) for a in (first, second, old, *unreached)] == [
        NodeAnswer,
        NodeAnswer,
        StaleEpoch,
        NodeNotFound,
    ]
    async with engine.connect() as conn:
        after = {r.node_id: r for r in await nodes.of_attempt(conn, "att-1")}
        (event,) = await events.newest(conn, "job", after=None, limit=10) or []
        hints = (await conn.execute(select(tables.attempts.c.hints))).scalar_one()
    evicting = [after[node.node_id].evicting for node in node_records]
    assert (evicting, after[node_records[1].node_id].phase) == (
        [True, False, False],
        NodePhase.STOPPED,
    )
    assert event.code == "node.eviction_notice"
    assert hints > claim.hints


async def test_no_more_jobs_of_a_batch_start_than_there_are_cores(
    engine: AsyncEngine, clock: Clock
) -> None:
    reserved = {"1": CORES, "2": 0, "3": 0, "4": 0}  # cores already reserved for each job
    async with engine.begin() as conn:
        await quotas.claim_region(conn, SPOT.region, clock(), timedelta(minutes=1))
        # Somebody else uses the cores of one job.
        await quotas.record_usage(conn, SPOT.region, 3 * CORES, CORES, clock())
        for n, cores in reserved.items():
            await add_job(conn, clock(), id=f"job-{n}")
            gang = Gang(
                job_id=f"job-{n}",
                project_id=f"p-job-{n}",
                priority=Priority.NORMAL,
                gpus=8,
                wants=(),
            )
            if n != "4":
                await queue.admit_at_once(conn, gang, clock(), SPOT.region, cores)
        demands = {f"job-{n}": (SPOT, 1) for n in reserved}

        assert await admission.find_jobs_with_room(conn, demands, clock()) == {"job-1", "job-2"}
