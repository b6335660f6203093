"""What operators see: how the service stands, the fleet, the queue, prices."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from service.db.cloud import circuit_breaker, rate_limit
from service.db.cloud.rate_limit import TokenRequest
from service.db.core import replicas
from service.db.core.engine import driver_url
from service.db.core.notify import Listener
from service.db.jobs import events
from service.db.queue import queue
from service.db.spot import capacity_outages, market
from service.domain.cloud.rate_limit import BUCKETS, RequestKind
from service.domain.spot.capacity_traces import SpotPool
from service.domain.spot.market import EvictionBand, PricePoint
from tests.nodes.scripted_node import boot, start_training
from tests.waiting import until
from tests.world import SPOT, World

SYSTEM = "/v1/organization/system"
Json = dict[str, Any]


async def test_work_that_no_reconciler_takes_is_shown_as_a_lag(world: World) -> None:
    idle = await world.get(SYSTEM)
    await world.submit()
    world.clock.advance(seconds=90)
    system = await world.get(SYSTEM)

    assert [(w["name"], w["due"], w["lag_seconds"]) for w in idle["work"]] == [
        ("jobs", 0, 0.0),
        ("attempts", 0, 0.0),
    ]
    assert (system["work"][0]["due"], system["work"][0]["lag_seconds"]) == (1, 90.0)
    assert (system["replicas"], system["this_replica"]["runs_loops"]) == ([], False)
    assert system["schema_revision"].isdigit()


async def test_a_replica_is_shown_until_it_goes(world: World, database_url: str) -> None:
    listeners = [Listener(driver_url(database_url)) for _ in range(2)]
    listeners[0].introduce("all", "1.2.3")
    listeners[1].introduce("reconciler", None)
    async with running(listeners):
        async with world.engine.begin() as conn:
            lease = (world.clock(), timedelta(seconds=30))
            assert await queue.acquire_lease(conn, listeners[1].name, *lease)
        rows = (await world.get(SYSTEM))["replicas"]
        world.clock.advance(seconds=31)
        lapsed = (await world.get(SYSTEM))["replicas"]

    replicas_by_name = {r["name"]: (r["command"], r["version"], r["leads"]) for r in rows}
    assert replicas_by_name == {
        listeners[0].name: ("all", "1.2.3", []),
        listeners[1].name: ("reconciler", None, ["admission"]),
    }
    assert [r["leads"] for r in lapsed] == [[], []]
    await until(lambda: world.get(SYSTEM), lambda system: system["replicas"] == [])


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
        assert await queue.acquire_lease(conn, "replica-1", now, timedelta(seconds=30))
        bucket = {str(RequestKind.CREATE): BUCKETS[RequestKind.CREATE]}
        await rate_limit.take(conn, [TokenRequest(region="eastus", buckets=bucket)], now)
        await circuit_breaker.record_failure(conn, "westus", now, 0.0, probed=False)

    system = await world.get(SYSTEM)

    (lease,), (budget,), (circuit,) = system["turns"], system["rate_budgets"], system["circuits"]
    assert (lease["holder"], lease["is_held"]) == ("replica-1", True)
    assert (budget["region"], budget["request"], budget["left"]) == (
        *("eastus", "CreateVMScaleSet", 374.0),
    )
    assert (circuit["region"], circuit["failures"]) == ("westus", 1)


async def test_a_job_that_needs_a_person_is_shown_until_it_does_not(world: World) -> None:
    job = str((await world.submit(suffix="stuck"))["id"])
    async with world.engine.begin() as conn:
        help_event = ("attempt.needs_help", "Grant the role.")
        await events.add(conn, job, world.clock(), *help_event, level="error")
    help_wanted = (await world.get(SYSTEM))["help_wanted"]
    async with world.engine.begin() as conn:
        await events.add(conn, job, world.clock(), "attempt.help_over", "Mended.", level="info")
    after = (await world.get(SYSTEM))["help_wanted"]

    assert [(w["job"], w["job_name"], w["message"]) for w in help_wanted] == [
        (job, "stuck", "Grant the role.")
    ]
    assert after == []


FLEET, PRICES = "/v1/organization/fleet", "/v1/organization/prices"
PLACE = SpotPool(SPOT.region, SPOT.vm_size)


async def test_machines_are_shown_with_their_nodes_and_what_they_cost(world: World) -> None:
    job, _, _ = await start_training(world, step=3, suffix="mine")

    fleet = await world.get(FLEET)

    (attempt,), (offering,) = fleet["attempts"], fleet["offerings"]
    assert (attempt["job"], attempt["job_name"], attempt["state"]) == (job, "mine", "running")
    assert (attempt["machines"], attempt["running"], attempt["joined"]) == (2, 2, 2)
    assert [node["step"] for node in attempt["nodes"]] == [3, 3]
    assert {node["unhealthy_since"] for node in attempt["nodes"]} == {None}
    assert (attempt["per_hour"], fleet["per_hour"]) == ("16.8800", "16.8800")
    assert fleet["on_demand_per_hour"] == "65.5400"
    assert (offering["region"], offering["gpus"], offering["machines"]) == ("eastus", 8, 2)
    assert (offering["per_hour"], offering["on_demand_per_hour"]) == ("8.4400", "32.7700")
    assert offering["last_given_at"]
    assert (offering["shortage"], offering["cores"]) == (None, None)


async def test_an_offering_says_since_when_azure_has_refused_it(world: World) -> None:
    async with world.engine.begin() as conn:
        now = world.clock()
        await capacity_outages.note(conn, SPOT, 4, "no room", now, now)
        await market.save_bands(conn, {PLACE: EvictionBand.TO_10}, now)

    (offering,) = (await world.get(FLEET))["offerings"]

    assert offering["shortage"] == {
        "since": int(now.timestamp()),
        "retry_at": int(now.timestamp()) + 60,
        "refusals": 1,
        "machines": 4,
        "reason": "no room",
    }
    assert offering["eviction_rate"] == "5-10"
    assert (offering["per_hour"], offering["last_given_at"]) == (None, None)


async def test_a_project_sees_its_own_machines_and_operators_those_of_all(world: World) -> None:
    job = str((await world.submit())["id"])
    await boot(world, job)

    own_system = await world.get(FLEET)
    other_system = await replace(world, key=await world.other_key()).get(FLEET)

    assert (own_system["all_projects"], len(own_system["attempts"])) == (True, 1)
    assert (other_system["all_projects"], other_system["attempts"], other_system["queue"]) == (
        False,
        [],
        [],
    )
    assert other_system["offerings"][0]["machines"] == 0
    assert other_system["per_hour"] == "0.0000"


@pytest.mark.parametrize(("days", "prices"), [(1, ["9.0000"]), (30, ["8.0000", "9.0000"])])
async def test_prices_are_as_azure_published_them(
    world: World, days: int, prices: list[str]
) -> None:
    now = world.clock()
    points = [
        PricePoint(now - timedelta(days=20), Decimal(8)),
        PricePoint(now - timedelta(days=2), Decimal(9)),
    ]
    async with world.engine.begin() as conn:
        await market.save_prices(conn, {PLACE: points}, now)

    response = await world.call("GET", PRICES, params={"days": days})

    (history,) = response.json()["data"]
    assert (history["region"], history["vm_size"]) == PLACE
    assert [point["per_hour"] for point in history["prices"]] == prices
