"""Leases: who may write a row, who may not any more, and that no enqueue is lost."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

import pytest
from sqlalchemy import func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.db.attempts import attempt_moves, attempts
from service.db.attempts.attempts import AttemptRow
from service.db.core import leases
from service.db.core.leases import LEASE, Claim
from service.db.jobs import jobs
from service.db.schema import tables
from service.domain.cloud.rate_limit import CloudCall, Deferral
from service.domain.errors import LeaseLost
from service.domain.lifecycle.attempt import MoveAttempt, OpenGeneration
from service.domain.lifecycle.node import node_view
from service.domain.states import AttemptState, Outcome
from service.operations.attempts import generations as generation_operations
from service.operations.attempts.generations import Opening
from tests import waiting
from tests.clock import Clock
from tests.integration.db.rows import (
    add_attempt,
    add_job,
    add_node,
    claim_attempt,
    transact,
)
from trainer.contract import Head

ROWS = 40
AFTER_LEASE = LEASE.total_seconds() + 1
GIVEN_UP = MoveAttempt(to=AttemptState.TERMINATING, outcome=Outcome.EVICTED, reason="gone")


@pytest.fixture
async def _one_attempt(engine: AsyncEngine, clock: Clock) -> None:
    async with engine.begin() as conn:
        await add_job(conn, clock())
        await add_attempt(conn, clock())


async def _moves(conn: AsyncConnection, claim: Claim, row: AttemptRow, clock: Clock) -> None:
    await attempt_moves.move(conn, claim, row, GIVEN_UP, clock())


async def _releases(conn: AsyncConnection, claim: Claim, row: AttemptRow, clock: Clock) -> None:
    await leases.release(conn, claim, clock(), clock() + timedelta(hours=1))


async def _notes_vms(conn: AsyncConnection, claim: Claim, row: AttemptRow, clock: Clock) -> None:
    await leases.write(conn, claim, vm_ids=["vm-1"])


async def _opens(conn: AsyncConnection, claim: Claim, row: AttemptRow, clock: Clock) -> None:
    node = await add_node(conn, clock(), "vm-1")
    step = OpenGeneration(nodes=(node_view(node, present=True),))
    opening = Opening(claim=claim, row=row, step=step, head=Head(generation=1), run_spec_sha256="")
    await generation_operations.open_all(conn, [opening], clock())


async def _is_about_to_act(
    conn: AsyncConnection, claim: Claim, row: AttemptRow, clock: Clock
) -> None:
    await leases.check(conn, claim)


WRITES = (_moves, _releases, _notes_vms, _opens, _is_about_to_act)
Write = Callable[[AsyncConnection, Claim, AttemptRow, Clock], Awaitable[None]]


@pytest.mark.usefixtures("_one_attempt")
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("gave_back", [False, True])
async def test_a_worker_that_lost_its_lease_writes_nothing(
    engine: AsyncEngine, clock: Clock, write: Write, *, gave_back: bool
) -> None:
    async with engine.begin() as conn:
        late_claim, row = await claim_attempt(conn, clock())
    async with engine.begin() as conn:
        if gave_back:
            await leases.release(conn, late_claim, clock(), clock())
        else:
            clock.advance(seconds=AFTER_LEASE)
            await claim_attempt(conn, clock())
    before = await _everything(engine)

    with pytest.raises(LeaseLost):
        await transact(engine, lambda c: write(c, late_claim, row, clock))

    assert await _everything(engine) == before


async def test_a_worker_claims_no_more_than_it_asks_for_where_its_query_is_asked_for_each_row(
    engine: AsyncEngine, clock: Clock
) -> None:
    """By the plan of a nested loop that keeps nothing; PostgreSQL chooses it after many deletes."""
    async with engine.begin() as conn:
        for number in range(ROWS):
            await add_job(conn, clock(), id=f"job-{number}")
        for plan_kind in ("hashjoin", "hashagg", "sort", "material"):
            await conn.execute(text(f"set local enable_{plan_kind} = off"))
        claimed = await jobs.claim_due(conn, clock(), 3)

    assert len(claimed) == 3


async def test_a_worker_does_not_wait_for_rows_that_another_one_is_claiming(
    engine: AsyncEngine, clock: Clock
) -> None:
    async with engine.begin() as conn:
        for number in range(2):
            await add_job(conn, clock(), id=f"job-{number}")
    async with engine.begin() as first_conn, engine.begin() as second_conn:
        await second_conn.execute(text("set local lock_timeout = '5s'"))
        first = await jobs.claim_due(first_conn, clock(), 1)
        second = await jobs.claim_due(second_conn, clock(), 2)

    assert sorted(c.row_id for c, _ in first + second) == ["job-0", "job-1"]


@pytest.mark.usefixtures("_one_attempt")
async def test_an_expired_lease_can_be_claimed(engine: AsyncEngine, clock: Clock) -> None:
    async with engine.begin() as conn:
        first, _ = await claim_attempt(conn, clock())
    clock.advance(seconds=AFTER_LEASE - 2)
    async with engine.begin() as conn:
        too_early = await attempts.claim_due(conn, clock(), 10)
    clock.advance(seconds=2)
    async with engine.begin() as conn:
        second, _ = await claim_attempt(conn, clock())

    assert too_early == []
    assert first.token != second.token


@pytest.mark.usefixtures("_one_attempt")
async def test_a_row_waits_until_it_is_due_or_enqueued(engine: AsyncEngine, clock: Clock) -> None:
    async with engine.begin() as conn:
        claim, _ = await claim_attempt(conn, clock())
        await leases.release(conn, claim, clock(), clock() + timedelta(seconds=30))
    clock.advance(seconds=29)
    async with engine.begin() as conn:
        assert await attempts.claim_due(conn, clock(), 10) == []
    clock.advance(seconds=1)
    async with engine.begin() as conn:
        claim, _ = await claim_attempt(conn, clock())
        await leases.release(conn, claim, clock(), clock() + timedelta(hours=1))
        await leases.enqueue(conn, tables.attempts, "att-1", clock())
        assert len(await attempts.claim_due(conn, clock(), 10)) == 1


@pytest.mark.parametrize(("seconds_later", "first"), [(29, "att-2"), (31, "att-1")])
async def test_what_trains_goes_before_machines_that_come_for_as_long_as_a_notice_lasts(
    engine: AsyncEngine, clock: Clock, seconds_later: int, first: str
) -> None:
    async with engine.begin() as conn:
        for n, state, due in ((1, "provisioning", 0), (2, "running", seconds_later)):
            await add_job(conn, clock(), id=f"job-{n}")
            due_at = clock() + timedelta(seconds=due)
            attempt = {"id": f"att-{n}", "job_id": f"job-{n}", "state": state, "due_at": due_at}
            await add_attempt(conn, clock(), **attempt)
        clock.advance(seconds=60)
        ((claim, _),) = await attempts.claim_due(conn, clock(), 1)

    assert claim.row_id == first


async def test_a_job_that_has_trained_goes_before_those_that_are_new(
    engine: AsyncEngine, clock: Clock
) -> None:
    async with engine.begin() as conn:
        for n, state in enumerate(("validating", "queued", "recovering")):
            await add_job(conn, clock(), id=f"job-{n}", state=state)
            clock.advance(seconds=9)
        ((claim, _),) = await jobs.claim_due(conn, clock(), 1)

    assert claim.row_id == "job-2"


@pytest.mark.usefixtures("_one_attempt")
@pytest.mark.parametrize("in_batch", [False, True])
async def test_an_enqueue_while_the_row_is_claimed_is_not_lost(
    engine: AsyncEngine, clock: Clock, *, in_batch: bool
) -> None:
    async with engine.begin() as conn:
        claim, _ = await claim_attempt(conn, clock())
    async with engine.begin() as conn:
        await leases.enqueue(conn, tables.attempts, "att-1", clock())
    async with engine.begin() as conn:
        assert await attempts.claim_due(conn, clock(), 10) == [], "it is still claimed"
        later_at = clock() + timedelta(hours=1)
        if in_batch:
            assert await leases.release_all(conn, [(claim, later_at)], clock()) == {"att-1"}
        else:
            await leases.release(conn, claim, clock(), later_at)

        assert len(await attempts.claim_due(conn, clock(), 10)) == 1


@pytest.mark.usefixtures("_one_attempt")
@pytest.mark.parametrize("in_batch", [False, True])
async def test_a_release_forgets_a_deferred_call_unless_it_goes_on_waiting(
    engine: AsyncEngine, clock: Clock, *, in_batch: bool
) -> None:
    deferral = Deferral(call=CloudCall.DELETE, until=clock() + timedelta(minutes=1))
    async with engine.begin() as conn:
        claim, _ = await claim_attempt(conn, clock())
        await leases.release_all(conn, [(claim, clock())], clock(), {"att-1": deferral})
        claim, job = await claim_attempt(conn, clock())
        if in_batch:
            await leases.release_all(conn, [(claim, clock())], clock())
        else:
            await leases.release(conn, claim, clock(), clock())
        _, forgotten_job = await claim_attempt(conn, clock())

    assert (job.deferred_call, job.deferred_until) == (deferral.call, deferral.until)
    assert (forgotten_job.deferred_call, forgotten_job.deferred_until) == (None, None)


@pytest.mark.usefixtures("_one_attempt")
async def test_a_worker_does_not_write_over_a_state_that_it_did_not_claim(
    engine: AsyncEngine, clock: Clock
) -> None:
    async with engine.begin() as conn:
        claim, row = await claim_attempt(conn, clock())
        values = {"state": "terminating", "outcome": "evicted"}
        await conn.execute(tables.attempts.update().values(**values))
        with pytest.raises(LeaseLost):
            await attempt_moves.move(conn, claim, row, GIVEN_UP, clock())


async def _everything(engine: AsyncEngine) -> dict[str, object]:
    """All that a late worker could have changed."""
    async with engine.connect() as conn:
        expected: dict[str, object] = {
            t.name: [tuple(r) for r in await conn.execute(select(t))]
            for t in (tables.jobs, tables.attempts, tables.generations, tables.nodes)
        }
        count = select(func.count()).select_from(tables.events)
        expected["events"] = (await conn.execute(count)).scalar_one()
    return expected


@pytest.mark.usefixtures("_one_attempt")
async def test_a_lease_that_another_worker_has_taken_is_not_renewed_for_it(
    engine: AsyncEngine, clock: Clock
) -> None:
    async with engine.begin() as conn:
        lost_claim, _ = await claim_attempt(conn, clock())
    clock.advance(seconds=AFTER_LEASE)
    async with engine.begin() as conn:
        await claim_attempt(conn, clock())
        await add_job(conn, clock(), id="job-2")
        await add_attempt(conn, clock(), id="att-2", job_id="job-2")
        own_claim, _ = await claim_attempt(conn, clock())
    taken_at = clock()
    clock.advance(seconds=1)

    async def expire_at() -> dict[str, datetime]:
        c = tables.attempts.c
        async with engine.connect() as conn:
            rows = await conn.execute(select(c.id, c.lease_expires_at))
        return {row.id: row.lease_expires_at for row in rows}

    renewals = leases.LeaseRenewer(engine, clock, interval=0.01)
    async with renewals.renewing(lost_claim), renewals.renewing(own_claim):
        due_times = await waiting.until(expire_at, lambda at: at["att-2"] == clock() + LEASE)

    assert due_times["att-1"] == taken_at + LEASE
