"""What holds cores is counted once, whoever commits while they are counted."""

from typing import Any

import psycopg
import pytest
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncEngine

from contract.choices import Priority
from service.db.queue import queue, quotas
from service.db.queue.queue import Gang
from service.domain.cloud.fleet import SpotCores
from tests.clock import Clock
from tests.integration.db.rows import add_attempt, add_job
from tests.world import SPOT

CORES = 2 * 96  # of two machines
QUOTA = SpotCores(limit=100 * CORES, used=0)
BACK = "update attempts set state = 'pending', outcome = null, ended_at = null"
ENDS = "update attempts set state = 'ended', outcome = 'evicted', ended_at = now()"


@pytest.mark.parametrize("which", [1, 2])
@pytest.mark.parametrize("running", [True, False], ids=["an attempt ends", "an attempt begins"])
async def test_cores_are_counted_once_whatever_is_committed_between_two_statements(
    engine: AsyncEngine, database_url: str, clock: Clock, which: int, running: bool
) -> None:
    gang = Gang(job_id="job", project_id="p-job", priority=Priority.NORMAL, gpus=16, wants=())
    async with engine.begin() as conn:
        await add_job(conn, clock(), state="queued")
        await queue.admit_at_once(conn, gang, clock(), SPOT.region, CORES)
        await add_attempt(conn, clock())
        if not running:
            await conn.execute(text(ENDS))
        await quotas.claim_region(conn, SPOT.region, clock(), quotas.STALE)
        await quotas.record_usage(conn, SPOT.region, QUOTA.limit, QUOTA.used, clock())

    sent = 0

    def meanwhile(*_: Any) -> None:  # noqa: ANN401 - SQLAlchemy's
        nonlocal sent
        sent += 1
        if sent == which:
            url = database_url.replace("+psycopg", "")
            with psycopg.connect(url, autocommit=True) as another:
                another.execute(ENDS if running else BACK)

    async with engine.connect() as conn:
        event.listen(conn.sync_connection, "before_cursor_execute", meanwhile)
        counted = await quotas.regions(conn, clock())

    assert sent >= which
    assert counted[SPOT.region].own == CORES
