"""How the service stands, as operators see it: from rows, and nothing invented."""

from datetime import timedelta
from typing import Any

from service.db import events, politeness, queue
from service.domain.politeness import LIMITS, Kind
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
    assert (late["replicas"], late["this_replica"]["runs_loops"]) == (None, False)
    assert late["schema_revision"].isdigit()


async def test_turns_rate_limits_and_circuits_are_shown(world: World) -> None:
    now = world.clock()
    async with world.engine.begin() as conn:
        assert await queue.is_mine(conn, "replica-1", now, timedelta(seconds=30))
        await politeness.take(conn, "eastus", Kind.CREATE, LIMITS[Kind.CREATE], now)
        await politeness.failed(conn, "westus", now, 0.0, probed=False)

    shown = await system(world)

    (turn,), (budget,), (circuit,) = shown["turns"], shown["rate_budgets"], shown["circuits"]
    assert (turn["holder"], turn["is_held"]) == ("replica-1", True)
    assert (budget["region"], budget["request"], budget["left"]) == (
        *("eastus", "CreateVMScaleSet", 365.0),
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


async def test_only_operators_see_how_the_service_stands(world: World) -> None:
    headers = {"authorization": f"Bearer {await world.other_key()}"}

    answer = await world.http.get(SYSTEM, headers=headers)

    assert answer.status_code == 403
