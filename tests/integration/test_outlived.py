"""Evictions that an attempt goes on after have a date, and count from then on."""

from datetime import timedelta

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from service.db import cadences
from service.domain.traces import place_of
from service.reconciler.cadences import Cadences
from tests.clock import Clock
from tests.integration.rows import add_attempt, add_job
from tests.integration.test_cadences import first_told, known, trains
from tests.world import SPOT


@pytest.fixture
def watch(engine: AsyncEngine, clock: Clock) -> Cadences:
    return Cadences(engine=engine, hazard_per_hour=0.05, now=clock)


async def test_an_eviction_that_another_job_outlives_is_one_next_door_for_ten_minutes(
    engine: AsyncEngine, watch: Cadences, clock: Clock
) -> None:
    usual = await first_told(engine, watch, clock)
    at = clock() - timedelta(minutes=1)
    async with engine.begin() as conn:
        await add_job(conn, at, id="other", state="running")
        elastic = {"state": "running", "ran_at": at, "survived": 1, "outlived": [at]}
        await add_attempt(conn, at, id="other-1", job_id="other", **elastic)

    await watch.run_once()
    raised = (await known(engine)).told
    clock.advance(minutes=10)
    await watch.run_once()

    assert raised.evictions_per_hour > 3 * usual.evictions_per_hour
    assert (await known(engine)).told.evictions_per_hour < 1.6 * usual.evictions_per_hour


async def test_what_an_attempt_outlives_later_is_not_counted_yet(
    engine: AsyncEngine, clock: Clock
) -> None:
    hour = timedelta(hours=1)
    dated = [clock() - hour, clock() - 3 * hour]
    async with engine.begin() as conn:
        held = {"ran_at": clock() - 4 * hour, "survived": 3, "outlived": dated}  # one has no date
        await trains(conn, clock, **held)
        lived = [await cadences.lived(conn, [place_of(SPOT)], clock() - n * hour) for n in (0, 2)]

    assert [of[place_of(SPOT)].evictions for of in lived] == [3, 2]
