"""What the jobs of a service saw of Spot, written as files that a simulation replays."""

import json
from datetime import timedelta

import pytest

from bench.policy.traces import read
from service.db.schema.tables import ledger
from tests.integration.cli.conftest import Shell
from tests.integration.db.rows import add, add_attempt, add_job
from tests.world import SPOT, World

TRACES = "/v1/organization/traces"


async def live(world: World, region: str = SPOT.region) -> None:
    """Two machines, held for an hour until two hours ago, then evicted; refused an hour ago."""
    now = world.clock()
    started_at, end = now - timedelta(hours=3), now - timedelta(hours=2)
    refused_at = now - timedelta(hours=1)
    lived = {"region": region, "state": "ended", "job_id": region}
    first = {"id": f"{region}-1", "outcome": "evicted", "ended_at": end}
    second = {"id": f"{region}-2", "number": 2, "outcome": "no_capacity", "ended_at": refused_at}
    values = {
        "job_id": region,
        "attempt_id": f"{region}-1",
        "started_at": started_at,
        "ended_at": end,
    }
    async with world.engine.begin() as conn:
        await add_job(conn, started_at, id=region)
        await add_attempt(conn, started_at, **lived, **first)
        for vm_id in ("a", "b"):
            await add(conn, ledger, vm_id=vm_id, hourly=8, on_demand_hourly=32, **values)
        await add_attempt(conn, refused_at, **lived, **second)


async def test_what_was_seen_is_written_as_files_that_the_benchmark_reads(shell: Shell) -> None:
    await live(shell.world)
    folder = shell.folder / "seen"

    result = await shell.run("traces", "export", str(folder), "--days", "1", "--gap", "600")
    repeated = await shell.run("traces", "export", str(folder))

    (trace,) = read(folder, gang=2)
    ((zone,), (capacity,)) = trace.zones, trace.capacity
    written = json.loads((folder / f"{zone}.json").read_text())
    assert result.code == 0, result.err
    assert zone == f"{SPOT.region}_{SPOT.vm_size}"
    assert capacity == (True,) * (144 - 12) + (False,) * 12  # refusals and evictions last
    assert written["metadata"]["seen"] == [[126, 133], [138, 139]]
    assert written["metadata"]["prices"] == [[126, "8.000000"]]
    assert "144 counts, 5.6 % observed" in result.out
    assert repeated.code == 2
    assert "Pass a new folder" in repeated.err


async def test_places_come_page_by_page_and_all_of_the_same_time(world: World) -> None:
    for region in ("eastus", "swedencentral"):
        await live(world, region)

    first = (await world.call("GET", f"{TRACES}?days=1&limit=1")).json()
    world.clock.advance(minutes=7)
    query = f"days=1&limit=1&after={first['last_id']}&until={first['until']}"
    second = (await world.call("GET", f"{TRACES}?{query}")).json()

    assert (first["has_more"], second["has_more"]) == (True, False)
    assert [p["data"][0]["region"] for p in (first, second)] == ["eastus", "swedencentral"]
    begins = {p["data"][0]["trace"]["metadata"]["start_time"] for p in (first, second)}
    assert len(begins) == 1


@pytest.mark.parametrize(("outcome", "held_machines"), [("paused", 2), ("evicted", 0)])
async def test_a_hold_that_ended_today_is_seen(
    world: World, outcome: str, held_machines: int
) -> None:
    """Three machines were asked for 40 days ago; one was evicted since, the others today."""
    now = world.clock()
    started_at = now - timedelta(days=40)
    ended_at = {"a": now - timedelta(days=9), "b": now - timedelta(hours=6, minutes=1)}
    ended_at["c"] = now - timedelta(hours=6)
    async with world.engine.begin() as conn:
        await add_job(conn, started_at)
        values = {"state": "ended", "outcome": outcome, "ended_at": ended_at["c"]}
        await add_attempt(conn, started_at, instance_count=3, **values)
        for vm_id, end in ended_at.items():
            row = {
                "job_id": "job",
                "attempt_id": "att-1",
                "started_at": started_at,
                "ended_at": end,
            }
            await add(conn, ledger, vm_id=vm_id, hourly=8, on_demand_hourly=32, **row)

    (pool,) = (await world.call("GET", f"{TRACES}?days=1&gap_seconds=3600")).json()["data"]

    assert pool["trace"]["data"] == [2] * 18 + [held_machines] * 6


async def test_where_nothing_was_asked_for_there_is_nothing_to_write(shell: Shell) -> None:
    result = await shell.run("traces", "export", "seen")

    assert result.code == 0
    assert "Run jobs on Spot first" in result.out
