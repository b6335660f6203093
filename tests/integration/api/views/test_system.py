"""How the service stands, as operators see it: from rows, and nothing invented."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from service.db.cloud import circuit_breaker, rate_limit
from service.db.cloud.rate_limit import TokenRequest
from service.db.core import replicas
from service.db.core.engine import driver_url
from service.db.core.notify import Listener
from service.db.jobs import events
from service.db.queue import queue
from service.domain.cloud.rate_limit import BUCKETS, RequestKind
from tests.waiting import until
from tests.world import World

SYSTEM = "/v1/organization/system"
Json = dict[str, Any]


async def system(world: World) -> Json:
    answer = await world.call("GET", SYSTEM)
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


async def test_work_that_no_reconciler_takes_is_shown_as_a_lag(world: World) -> None:
    idle = await system(world)
    await world.submit()
    world.clock.advance(seconds=90)
    late = await system(world)

    assert [(w["name"], w["due"], w["lag_seconds"]) for w in idle["work"]] == [
        ("jobs", 0, 0.0),
        ("attempts", 0, 0.0),
    ]
    assert (late["work"][0]["due"], late["work"][0]["lag_seconds"]) == (1, 90.0)
    assert (late["replicas"], late["this_replica"]["runs_loops"]) == ([], False)
    assert late["schema_revision"].isdigit()


async def test_a_connected_replica_is_shown_with_what_it_runs_and_leads_until_it_goes(
    world: World, database_url: str
) -> None:
    listeners = [Listener(driver_url(database_url)) for _ in range(2)]
    listeners[0].introduce("all", "1.2.3")
    listeners[1].introduce("reconciler", None)
    async with running(listeners):
        async with world.engine.begin() as conn:
            turn = (world.clock(), timedelta(seconds=30))
            assert await queue.hold_lease(conn, listeners[1].name, *turn)
        shown = (await system(world))["replicas"]
        world.clock.advance(seconds=31)
        lapsed = (await system(world))["replicas"]

    told = {r["name"]: (r["command"], r["version"], r["leads"]) for r in shown}
    assert told == {
        listeners[0].name: ("all", "1.2.3", []),
        listeners[1].name: ("reconciler", None, ["admission"]),
    }
    assert [r["leads"] for r in lapsed] == [[], []]
    await until(lambda: system(world), lambda seen: seen["replicas"] == [])


def test_a_name_keeps_the_end_of_a_long_host_and_fits_postgresql() -> None:
    name = replicas.name_of("rekindle-reconciler-7d9f8b6c5-x2x4z", "0123abcd")

    assert name.endswith("-7d9f8b6c5-x2x4z-0123abcd")
    assert len(replicas.application_name(name, "reconciler", "1.2.3.dev4+gabcdef")) <= 63


@asynccontextmanager
async def running(listeners: list[Listener]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(listener.run()) for listener in listeners]
    await until(lambda: _hears(listeners), bool)
    yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _hears(listeners: list[Listener]) -> bool:
    return all(listener.is_connected for listener in listeners)


async def test_turns_rate_limits_and_circuits_are_shown(world: World) -> None:
    now = world.clock()
    async with world.engine.begin() as conn:
        assert await queue.hold_lease(conn, "replica-1", now, timedelta(seconds=30))
        bucket = {str(RequestKind.CREATE): BUCKETS[RequestKind.CREATE]}
        await rate_limit.take(conn, [TokenRequest(region="eastus", buckets=bucket)], now)
        await circuit_breaker.record_failure(conn, "westus", now, 0.0, probed=False)

    shown = await system(world)

    (turn,), (budget,), (circuit,) = shown["turns"], shown["rate_budgets"], shown["circuits"]
    assert (turn["holder"], turn["is_held"]) == ("replica-1", True)
    assert (budget["region"], budget["request"], budget["left"]) == (
        *("eastus", "CreateVMScaleSet", 374.0),
    )
    assert (circuit["region"], circuit["failures"]) == ("westus", 1)


async def test_a_job_that_needs_a_person_is_shown_until_it_does_not(world: World) -> None:
    job = str((await world.submit(suffix="stuck"))["id"])
    async with world.engine.begin() as conn:
        told = ("attempt.needs_help", "Grant the role.")
        await events.add(conn, job, world.clock(), *told, level="error")
    wanted = (await system(world))["help_wanted"]
    async with world.engine.begin() as conn:
        await events.add(conn, job, world.clock(), "attempt.help_over", "Mended.", level="info")
    after = (await system(world))["help_wanted"]

    assert [(w["job"], w["job_name"], w["message"]) for w in wanted] == [
        (job, "stuck", "Grant the role.")
    ]
    assert after == []
