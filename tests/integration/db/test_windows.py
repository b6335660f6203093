"""What holds for a while holds to its second, and no longer."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.db.attempts import attempts
from service.db.files import preflights
from service.db.queue import queue
from service.db.schema.queue_tables import queue as queue_table
from tests.clock import Clock
from tests.integration.db.rows import add, add_attempt, add_job

Begin = Callable[[AsyncConnection, datetime], Awaitable[object]]
IsOver = Callable[[AsyncConnection, datetime], Awaitable[bool]]


async def claim_check(conn: AsyncConnection, now: datetime) -> bool:
    return await preflights.claim(conn, "key", now)


async def refuse_check(conn: AsyncConnection, now: datetime) -> None:
    await preflights.claim(conn, "key", now)
    await preflights.refuse(conn, "key", {"code": "any"}, now)


async def claim_attempt(conn: AsyncConnection, now: datetime) -> bool:
    return bool(await attempts.claim_due(conn, now, 10))


async def add_and_claim(conn: AsyncConnection, now: datetime) -> None:
    await add_attempt(conn, now, job_id="job-1")
    await claim_attempt(conn, now)


async def admit(conn: AsyncConnection, now: datetime) -> None:
    of = {"job_id": "job-1", "project_id": "p-job-1", "priority": "normal", "gpus": 8, "wants": []}
    await add(conn, queue_table, **of, admitted_at=now, region="eastus", cores=96)


async def keeps_no_cores(conn: AsyncConnection, now: datetime) -> bool:
    kept = (await queue.admitted(conn, ["job-1"], now))["job-1"]
    assert kept in (("eastus", 96), ("eastus", 0))
    return kept[1] == 0


WINDOWS: dict[str, tuple[float, Begin, IsOver]] = {
    "a check without progress": (30, claim_check, claim_check),
    "a check that was refused": (60, refuse_check, claim_check),
    "a lease": (6, add_and_claim, claim_attempt),
    "cores of a job that was let in": (300, admit, keeps_no_cores),
}


@pytest.mark.parametrize("what", WINDOWS)
async def test_a_window_of_time_is_as_long_as_it_is_said_to_be(
    engine: AsyncEngine, clock: Clock, what: str
) -> None:
    seconds, begin, is_over = WINDOWS[what]
    async with engine.begin() as conn:
        await add_job(conn, clock(), id="job-1", due_at=clock() + timedelta(days=1))
        began = clock()
        await begin(conn, began)
        before = await is_over(conn, began + timedelta(seconds=seconds, milliseconds=-1))
        after = await is_over(conn, began + timedelta(seconds=seconds, milliseconds=1))

    assert (before, after) == (False, True)
