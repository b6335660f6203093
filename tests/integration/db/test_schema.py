"""The schema refuses each row that the life cycle cannot have."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Table
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from service.db.schema import tables
from service.db.schema.storage_tables import storage_ledger, tier_moves
from tests.clock import Clock
from tests.integration.db.rows import add, add_attempt, add_job, transact

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
    ("constraint", "table", "there", "row"),
    [
        ("ledger_one_open_row_per_machine", tables.ledger, [_MACHINE], _MACHINE),
        (
            "ledger_time_runs_forward_check",
            tables.ledger,
            [_MACHINE | {"ended_at": NOON}],
            _MACHINE | {"ended_at": NOON - timedelta(seconds=1)},
        ),
        ("generations_pkey", tables.generations, [_GENERATION], _GENERATION),
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
    there: list[dict[str, Any]],
    row: dict[str, Any],
) -> None:
    async with engine.begin() as conn:
        await add_job(conn, clock())
        await add_attempt(conn, clock())
        for one in there:
            await add(conn, table, **one)
    with pytest.raises(IntegrityError, match=constraint):
        await transact(engine, lambda c: add(c, table, **row))
