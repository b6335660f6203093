"""The schema refuses each row that the life cycle cannot have."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from service.db.schema import tables
from tests.clock import Clock
from tests.integration.db.rows import add, add_attempt, add_job, transact

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
_OVER = {"state": "terminating", "outcome": "evicted"}


@pytest.mark.parametrize(
    ("constraint", "values"),
    [
        ("attempts_state_check", {"state": "resting"}),
        ("attempts_outcome_check", {"state": "terminating", "outcome": "bored"}),
        ("attempts_capacity_type_check", {"capacity_type": "borrowed"}),
        ("attempts_outcome_known_check", {"state": "terminating"}),
        ("attempts_outcome_known_check", {"state": "running", "outcome": "evicted"}),
        ("attempts_end_is_dated_check", {"state": "ended", "outcome": "evicted"}),
        ("attempts_outlived_is_counted_check", {"survived": 1, "outlived": [NOON, NOON]}),
    ],
)
async def test_an_impossible_attempt_is_refused(
    engine: AsyncEngine, clock: Clock, constraint: str, values: dict[str, Any]
) -> None:
    await transact(engine, lambda c: add_job(c, clock()))

    with pytest.raises(IntegrityError, match=constraint):
        await transact(engine, lambda c: add_attempt(c, clock(), **values))


async def test_a_living_attempt_has_no_end(engine: AsyncEngine, clock: Clock) -> None:
    await transact(engine, lambda c: add_job(c, clock()))

    with pytest.raises(IntegrityError, match="attempts_end_is_dated_check"):
        await transact(engine, lambda c: add_attempt(c, clock(), **_OVER, ended_at=clock()))


@pytest.mark.parametrize(
    ("constraint", "values"),
    [
        ("jobs_state_check", {"state": "asleep"}),
        ("jobs_finished_is_dated_check", {"state": "cancelled"}),
        ("jobs_success_has_a_model_check", {"state": "succeeded"}),
        ("jobs_failure_has_a_reason_check", {"state": "failed"}),
    ],
)
async def test_an_impossible_job_is_refused(
    engine: AsyncEngine, clock: Clock, constraint: str, values: dict[str, Any]
) -> None:
    finished = {} if constraint == "jobs_finished_is_dated_check" else {"finished_at": clock()}
    finished = {} if constraint == "jobs_state_check" else finished
    with pytest.raises(IntegrityError, match=constraint):
        await transact(engine, lambda c: add_job(c, clock(), **values, **finished))


async def test_a_job_that_runs_has_not_finished(engine: AsyncEngine, clock: Clock) -> None:
    with pytest.raises(IntegrityError, match="jobs_finished_is_dated_check"):
        await transact(engine, lambda c: add_job(c, clock(), state="running", finished_at=clock()))


async def test_a_job_has_one_live_attempt(engine: AsyncEngine, clock: Clock) -> None:
    async with engine.begin() as conn:
        await add_job(conn, clock())
        await add_attempt(conn, clock(), **_OVER)
        await add_attempt(conn, clock(), id="att-2", number=2)

    with pytest.raises(IntegrityError, match="attempts_one_live_per_job"):
        await transact(
            engine, lambda c: add_attempt(c, clock(), id="att-3", number=3, state="pending")
        )


async def test_attempts_of_a_job_have_numbers_of_their_own(
    engine: AsyncEngine, clock: Clock
) -> None:
    async with engine.begin() as conn:
        await add_job(conn, clock())
        await add_attempt(conn, clock(), **_OVER)

    with pytest.raises(IntegrityError, match="attempts_job_id_number_key"):
        await transact(engine, lambda c: add_attempt(c, clock(), id="att-2"))


async def test_a_machine_has_one_open_cost_row(engine: AsyncEngine, clock: Clock) -> None:
    row = {"job_id": "job", "attempt_id": "att-1", "vm_id": "vm-1", "started_at": clock()}
    row |= {"hourly": 8, "on_demand_hourly": 32}
    async with engine.begin() as conn:
        await add_job(conn, clock())
        await add_attempt(conn, clock())
        await add(conn, tables.ledger, **row, ended_at=clock())
        await add(conn, tables.ledger, **row)

    with pytest.raises(IntegrityError, match="ledger_one_open_row_per_machine"):
        await transact(engine, lambda c: add(c, tables.ledger, **row))


async def test_cost_never_ends_before_it_began(engine: AsyncEngine, clock: Clock) -> None:
    row = {"job_id": "job", "attempt_id": "att-1", "vm_id": "vm-1", "started_at": clock()}
    row |= {"hourly": 8, "on_demand_hourly": 32, "ended_at": clock() - timedelta(seconds=1)}
    async with engine.begin() as conn:
        await add_job(conn, clock())
        await add_attempt(conn, clock())

    with pytest.raises(IntegrityError, match="ledger_time_runs_forward_check"):
        await transact(engine, lambda c: add(c, tables.ledger, **row))


async def test_two_jobs_of_a_project_never_share_an_idempotency_key(
    engine: AsyncEngine, clock: Clock
) -> None:
    again = {"id": "job-2", "project_id": "p-job", "idempotency_key": "once"}
    await transact(engine, lambda c: add_job(c, clock(), idempotency_key="once"))

    with pytest.raises(IntegrityError, match="jobs_one_per_idempotency_key"):
        await transact(engine, lambda c: add_job(c, clock(), **again))


async def test_generations_of_a_job_have_numbers_of_their_own(
    engine: AsyncEngine, clock: Clock
) -> None:
    row = {"job_id": "job", "number": 1, "attempt_id": "att-1", "content": {}}
    row |= {"opened_at": clock()}
    async with engine.begin() as conn:
        await add_job(conn, clock())
        await add_attempt(conn, clock())
        await add(conn, tables.generations, **row)

    with pytest.raises(IntegrityError, match="generations_pkey"):
        await transact(engine, lambda c: add(c, tables.generations, **row))
