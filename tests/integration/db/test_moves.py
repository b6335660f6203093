"""Only moves that exist, never without their event; and only rows that a life cycle can have."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Table, text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from service.db.attempts import attempt_moves, attempts
from service.db.jobs import events, jobs
from service.db.schema import tables
from service.db.schema.storage_tables import storage_ledger, tier_moves
from service.domain.errors import IllegalMove
from service.domain.lifecycle import job as job_steps
from service.domain.lifecycle.attempt import MoveAttempt
from service.domain.states import ATTEMPT_MOVES, JOB_MOVES, AttemptState, JobState, Outcome
from tests.clock import Clock
from tests.integration.db.rows import add, add_attempt, add_job, claim_attempt, claim_job, transact

# The event of a move cannot be written: what the database would do when it is full, say.
REFUSE_EVENTS = """
    create or replace function refuse() returns trigger language plpgsql
    as $$ begin raise exception 'no room for events'; end $$;
    create trigger refuse before insert on events execute function refuse();
"""
ACCEPT_EVENTS = "drop trigger refuse on events; drop function refuse;"
ILLEGAL = [
    *((AttemptState.PENDING, to) for to in set(AttemptState) - ATTEMPT_MOVES[AttemptState.PENDING]),
    *((AttemptState.RUNNING, to) for to in set(AttemptState) - ATTEMPT_MOVES[AttemptState.RUNNING]),
]


@pytest.mark.parametrize(("was", "next_state"), sorted(ILLEGAL))
async def test_an_attempt_makes_no_move_that_is_not_in_the_table(
    engine: AsyncEngine, clock: Clock, was: AttemptState, next_state: AttemptState
) -> None:
    async with engine.begin() as conn:
        await add_job(conn, clock())
        await add_attempt(conn, clock(), state=was)
        claim, row = await claim_attempt(conn, clock())

        step = MoveAttempt(to=next_state, outcome=Outcome.EVICTED)
        with pytest.raises(IllegalMove):
            await attempt_moves.move(conn, claim, row, step, clock())

        attempt = await attempts.find(conn, "att-1")
        assert attempt is not None
        assert attempt.state is was


@pytest.mark.parametrize("next_state", sorted(set(JobState) - JOB_MOVES[JobState.QUEUED]))
async def test_a_job_makes_no_move_that_is_not_in_the_table(
    engine: AsyncEngine, clock: Clock, next_state: JobState
) -> None:
    async with engine.begin() as conn:
        await add_job(conn, clock())
        claim, job = await claim_job(conn, clock())

        with pytest.raises(IllegalMove):
            await jobs.move(conn, claim, job, job_steps.MoveJob(to=next_state), clock())


async def test_a_move_that_cannot_tell_of_itself_is_not_made(
    engine: AsyncEngine, clock: Clock
) -> None:
    async with engine.begin() as conn:
        await add_job(conn, clock())
        await add_attempt(conn, clock())
        claim, row = await claim_attempt(conn, clock())
        job_claim, job = await claim_job(conn, clock())
    step = MoveAttempt(to=AttemptState.TERMINATING, outcome=Outcome.EVICTED, reason="gone")
    runs = job_steps.MoveJob(to=JobState.RUNNING)
    await _run(engine, REFUSE_EVENTS)
    try:
        with pytest.raises(DBAPIError, match="no room"):
            await transact(engine, lambda c: attempt_moves.move(c, claim, row, step, clock()))
        with pytest.raises(DBAPIError, match="no room"):
            await transact(engine, lambda c: jobs.move(c, job_claim, job, runs, clock()))
    finally:
        await _run(engine, ACCEPT_EVENTS)
    async with engine.begin() as conn:
        before = (await attempts.find(conn, "att-1"), await jobs.find(conn, "job"))
        await attempt_moves.move(conn, claim, row, step, clock())  # the lease still holds
        recorded = await events.newest(conn, "job", after=None, limit=9)

    assert before[0] == row
    assert before[1] is not None
    assert before[1].state is JobState.QUEUED
    assert [e.code for e in recorded or []] == ["attempt.terminating"]


async def test_a_job_is_dated_when_it_first_runs_and_when_it_is_over(
    engine: AsyncEngine, clock: Clock
) -> None:
    first, path = clock(), (JobState.RUNNING, JobState.RECOVERING, JobState.RUNNING)
    async with engine.begin() as conn:
        await add_job(conn, clock())
        for state in (*path, JobState.CANCELLED):
            claim, job = await claim_job(conn, clock())
            await jobs.move(conn, claim, job, job_steps.MoveJob(to=state), clock())
            clock.advance(minutes=1)
        row = await jobs.find(conn, "job")

    assert row is not None
    assert row.started_at == first
    assert row.finished_at == first + timedelta(minutes=3)


async def test_a_job_that_is_over_is_never_claimed_again(engine: AsyncEngine, clock: Clock) -> None:
    async with engine.begin() as conn:
        await add_job(conn, clock(), state="cancelled", finished_at=clock())
        await add_attempt(conn, clock(), state="ended", outcome="cancelled", ended_at=clock())

        assert await jobs.claim_due(conn, clock(), 10) == []
        assert await attempts.claim_due(conn, clock(), 10) == []


async def _run(engine: AsyncEngine, script: str) -> None:
    async with engine.begin() as conn:
        await conn.execute(text(script))


NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
_OVER = {"state": "terminating", "outcome": "evicted"}


_MACHINE = {"job_id": "job", "attempt_id": "att-1", "vm_id": "vm-1", "started_at": NOON}
_MACHINE |= {"hourly": 8, "on_demand_hourly": 32}
_GENERATION = {"job_id": "job", "number": 1, "attempt_id": "att-1", "content": {}}
_GENERATION |= {"opened_at": NOON}
_STORED = {"job_id": "job", "tier": "hot", "size": 1, "month": 1, "started_at": NOON}
_MOVE: dict[str, Any] = {"id": "m1", "job_id": "job", "path": "models/a", "tier": "cool"}
_MOVE |= {"priority": "high", "charge": 0, "asked_at": NOON}


@pytest.mark.parametrize(
    ("constraint", "values"),
    [
        ("attempts_state_check", {"state": "resting"}),
        ("attempts_outcome_check", {"state": "terminating", "outcome": "bored"}),
        ("attempts_capacity_type_check", {"capacity_type": "borrowed"}),
        ("attempts_outcome_known_check", {"state": "terminating"}),
        ("attempts_outcome_known_check", {"state": "running", "outcome": "evicted"}),
        ("attempts_end_is_dated_check", {"state": "ended", "outcome": "evicted"}),
        ("attempts_end_is_dated_check", _OVER | {"ended_at": NOON}),
        ("attempts_outlived_is_counted_check", {"survived": 1, "outlived": [NOON, NOON]}),
        ("attempts_one_live_per_job", {"number": 3, "state": "pending"}),
        ("attempts_job_id_number_key", _OVER | {"number": 1}),
    ],
)
async def test_an_impossible_attempt_is_refused(
    engine: AsyncEngine, clock: Clock, constraint: str, values: dict[str, Any]
) -> None:
    async with engine.begin() as conn:
        await add_job(conn, clock())
        await add_attempt(conn, clock(), id="att-0", **_OVER)
        if constraint == "attempts_one_live_per_job":
            await add_attempt(conn, clock(), id="att-2", number=2)
    with pytest.raises(IntegrityError, match=constraint):
        await transact(engine, lambda c: add_attempt(c, clock(), **{"number": 4} | values))


@pytest.mark.parametrize(
    ("constraint", "values"),
    [
        ("jobs_state_check", {"state": "asleep"}),
        ("jobs_finished_is_dated_check", {"state": "cancelled"}),
        ("jobs_finished_is_dated_check", {"state": "running", "finished_at": NOON}),
        ("jobs_success_has_a_model_check", {"state": "succeeded", "finished_at": NOON}),
        ("jobs_failure_has_a_reason_check", {"state": "failed", "finished_at": NOON}),
        ("jobs_one_per_idempotency_key", {"project_id": "p-job", "idempotency_key": "once"}),
    ],
)
async def test_an_impossible_job_is_refused(
    engine: AsyncEngine, clock: Clock, constraint: str, values: dict[str, Any]
) -> None:
    await transact(engine, lambda c: add_job(c, clock(), idempotency_key="once"))
    with pytest.raises(IntegrityError, match=constraint):
        await transact(engine, lambda c: add_job(c, clock(), id="job-2", **values))


@pytest.mark.parametrize(
    ("constraint", "table", "existing_rows", "row"),
    [
        ("ledger_one_open_row_per_machine", tables.ledger, [_MACHINE], _MACHINE),
        (
            "ledger_time_runs_forward_check",
            tables.ledger,
            [_MACHINE | {"ended_at": NOON}],
            _MACHINE | {"ended_at": NOON - timedelta(seconds=1)},
        ),
        (
            "generations_pkey",
            tables.generations,
            [_GENERATION],
            _GENERATION | {"attempt_id": "att-2"},
        ),
        ("storage_ledger_tier_check", storage_ledger, [], _STORED | {"tier": "tepid"}),
        ("storage_ledger_holds_something_check", storage_ledger, [], _STORED | {"size": 0}),
        (
            "storage_ledger_time_runs_forward_check",
            storage_ledger,
            [],
            _STORED | {"ended_at": NOON - timedelta(seconds=1)},
        ),
        ("storage_ledger_one_open_row_per_tier", storage_ledger, [_STORED], _STORED),
        ("tier_moves_end_has_an_outcome_check", tier_moves, [], _MOVE | {"ended_at": NOON}),
        (
            "tier_moves_outcome_check",
            tier_moves,
            [],
            _MOVE | {"ended_at": NOON, "outcome": "bored"},
        ),
        ("tier_moves_one_open_per_folder", tier_moves, [_MOVE], _MOVE | {"id": "m2"}),
    ],
)
async def test_an_impossible_row_is_refused(
    engine: AsyncEngine,
    clock: Clock,
    constraint: str,
    table: Table,
    existing_rows: list[dict[str, Any]],
    row: dict[str, Any],
) -> None:
    async with engine.begin() as conn:
        await add_job(conn, clock())
        await add_attempt(conn, clock())
        for values in existing_rows:
            await add(conn, table, **values)
    with pytest.raises(IntegrityError, match=constraint):
        await transact(engine, lambda c: add(c, table, **row))
