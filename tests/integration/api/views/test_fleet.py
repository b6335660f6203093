"""The fleet: offerings with their capacity, machines with their nodes, the queue, and prices."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from service.db.spot import capacity_outages, market
from service.domain.spot.capacity_traces import SpotPool
from service.domain.spot.market import EvictionBand, PricePoint
from tests.nodes.scripted_node import boot, start_training
from tests.world import SPOT, World

FLEET, PRICES = "/v1/organization/fleet", "/v1/organization/prices"
PLACE = SpotPool(SPOT.region, SPOT.vm_size)
Json = dict[str, Any]


async def fleet(world: World, key: str = "") -> Json:
    headers = {"authorization": f"Bearer {key or world.key}"}
    answer = await world.http.get(FLEET, headers=headers)
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


async def test_machines_are_shown_with_their_nodes_and_what_they_cost(world: World) -> None:
    job, _, _ = await start_training(world, step=3, suffix="mine")

    shown = await fleet(world)

    (attempt,), (offering,) = shown["attempts"], shown["offerings"]
    assert (attempt["job"], attempt["job_name"], attempt["state"]) == (job, "mine", "running")
    assert (attempt["machines"], attempt["running"], attempt["joined"]) == (2, 2, 2)
    assert [node["step"] for node in attempt["nodes"]] == [3, 3]
    assert {node["unhealthy_since"] for node in attempt["nodes"]} == {None}
    assert (attempt["per_hour"], shown["per_hour"]) == ("16.8800", "16.8800")
    assert shown["on_demand_per_hour"] == "65.5400"
    assert (offering["region"], offering["gpus"], offering["machines"]) == ("eastus", 8, 2)
    assert (offering["per_hour"], offering["on_demand_per_hour"]) == ("8.4400", "32.7700")
    assert offering["last_given_at"]
    assert (offering["shortage"], offering["cores"]) == (None, None)


async def test_an_offering_says_since_when_azure_has_refused_it(world: World) -> None:
    async with world.engine.begin() as conn:
        now = world.clock()
        await capacity_outages.note(conn, SPOT, 4, "no room", now, now)
        await market.save_bands(conn, {PLACE: EvictionBand.TO_10}, now)

    (offering,) = (await fleet(world))["offerings"]

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

    mine, theirs = await fleet(world), await fleet(world, await world.other_key())

    assert (mine["all_projects"], len(mine["attempts"])) == (True, 1)
    assert (theirs["all_projects"], theirs["attempts"], theirs["queue"]) == (False, [], [])
    assert theirs["offerings"][0]["machines"] == 0
    assert theirs["per_hour"] == "0.0000"


@pytest.mark.parametrize(("days", "prices"), [(1, ["9.0000"]), (30, ["8.0000", "9.0000"])])
async def test_prices_of_spot_are_shown_as_azure_published_them(
    world: World, days: int, prices: list[str]
) -> None:
    now = world.clock()
    points = [
        PricePoint(now - timedelta(days=20), Decimal(8)),
        PricePoint(now - timedelta(days=2), Decimal(9)),
    ]
    async with world.engine.begin() as conn:
        await market.save_prices(conn, {PLACE: points}, now)

    answer = await world.call("GET", PRICES, params={"days": days})

    (history,) = answer.json()["data"]
    assert (history["region"], history["vm_size"]) == PLACE
    assert [point["per_hour"] for point in history["prices"]] == prices
