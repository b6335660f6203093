"""A replica that stands still, or is gone without a word, in the middle of a transaction."""

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import select, text, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from service.api.app import RequestIds
from service.api.http import failures
from service.db.core.engine import FROZEN_SECONDS, make_engine
from service.db.schema import tables
from tests.clock import Clock
from tests.integration.db.rows import add_job

SOON = "&options=-c%20idle_in_transaction_session_timeout%3D200ms"


async def test_a_stalled_transaction_is_ended(
    engine: AsyncEngine, database_url: str, clock: Clock
) -> None:
    async with engine.begin() as conn:
        await add_job(conn, clock(), state="running")
    frozen = make_engine(database_url + SOON, pool_size=1)

    with pytest.raises(DBAPIError) as error:
        await _freeze(frozen, engine)
    async with frozen.connect() as second:
        reason = (await second.execute(select(tables.jobs.c.reason))).scalar_one()
    await frozen.dispose()

    assert reason == "other"
    response = await _answer(error.value)
    assert (response.status_code, response.json()["error"]["code"]) == (503, "service_unavailable")
    assert (await _answer(DBAPIError("select", None, Exception()))).status_code == 500


async def _answer(error: DBAPIError) -> httpx.Response:
    """Of an api whose handler ends with this error."""
    app = FastAPI()
    failures.install(app)
    app.add_middleware(RequestIds)

    @app.get("/")
    def ends() -> None:
        raise error

    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://api") as client:
        return await client.get("/")


async def _freeze(frozen: AsyncEngine, live: AsyncEngine) -> None:
    """Write a row and stand still, while another replica wants it; then go on."""
    async with frozen.begin() as conn:
        await conn.execute(update(tables.jobs).values(reason="frozen"))
        async with live.begin() as second:
            await second.execute(update(tables.jobs).values(reason="other"))
        await conn.execute(text("select 1"))


async def test_every_connection_of_the_service_is_bounded_so(engine: AsyncEngine) -> None:
    async with engine.connect() as conn:
        limit = await conn.execute(text("show idle_in_transaction_session_timeout"))
        assert limit.scalar_one() == f"{FROZEN_SECONDS}s"
