"""What is metered, and what Cost Management tells of it hours later."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.clock import Clock
from tests.emulated.inside import HERE, SET, SETS, Inside, emulator_inside
from tests.emulated.process import GROUP, scale_set

VERSION = "?api-version=2025-03-01"
COSTS = f"/providers/Microsoft.CostManagement/query{VERSION}"
SPOT = 8.441552
QUERY: dict[str, Any] = {
    "type": "ActualCost",
    "timeframe": "Custom",
    "timePeriod": {"from": "2026-01-01", "to": "2026-12-31"},
    "dataset": {"granularity": "None",
     "aggregation": {"cost": {"name": "PreTaxCost", "function": "Sum"},
     "hours": {"name": "UsageQuantity", "function": "Sum"}}},
}  # fmt: skip
AT_ONCE: dict[str, Any] = {"cost_delay_seconds": 0.0, "create_seconds": 0, "delete_seconds": 0}


async def costs(
    inside: Inside, dataset: dict[str, Any] | None = None, scope: str = HERE
) -> list[list[Any]]:
    query = QUERY | {"dataset": QUERY["dataset"] | (dataset or {})}
    response = await inside.arm.post(f"{scope}{COSTS}", json=query)
    return list(response.raise_for_status().json()["properties"]["rows"])


async def create(inside: Inside, count: int, url: str = SET, **members: object) -> None:
    (await inside.arm.put(url, json=scale_set(count) | members)).raise_for_status()
    await inside.fabric.step()


async def test_a_machine_costs_from_allocation_to_deletion(tmp_path: Path) -> None:
    async with emulator_inside(
        tmp_path, Clock(), create_seconds=600, delete_seconds=60, cost_delay_seconds=0
    ) as inside:
        await create(inside, 2)
        await inside.pass_time(600, step=60)
        assert await costs(inside) == []
        await inside.pass_time(3600, step=60)
        await inside.arm.delete(SET)
        await inside.pass_time(7200, step=60)
        ((cost, hours, currency),) = await costs(inside)

    assert currency == "USD"
    assert hours == pytest.approx(2 * 3660 / 3600)
    assert cost == pytest.approx(hours * SPOT)


async def test_what_is_evicted_or_deallocated_costs_no_more(tmp_path: Path) -> None:
    async with emulator_inside(tmp_path, Clock(), notice_seconds=60, **AT_ONCE) as inside:
        await create(inside, 2)
        body = scale_set(1, evictionPolicy="Deallocate", storageProfile={})
        (await inside.arm.put(f"{SETS}/rk-2", json=body)).raise_for_status()
        await inside.fabric.step()
        await inside.arm.post(f"{SET}/virtualMachines/0/simulateEviction")
        await inside.arm.post(f"{SETS}/rk-2/virtualMachines/0/simulateEviction")
        await inside.pass_time(3600, step=10)
        by_set = {"grouping": [{"type": "Dimension", "name": "ResourceId"}]}
        costs_by_set = {row[2]: row[1] for row in await costs(inside, by_set)}

    assert costs_by_set[SET.lower()] == pytest.approx((3600 + 60) / 3600)
    assert costs_by_set[f"{SETS}/rk-2".lower()] == pytest.approx(60 / 3600)


async def test_costs_are_told_hours_later(tmp_path: Path) -> None:
    async with emulator_inside(tmp_path, Clock(), create_seconds=0) as inside:
        await create(inside, 1)
        await inside.pass_time(8 * 3600, step=3600)
        assert await costs(inside) == []
        await inside.pass_time(1800, step=600)
        assert [row[1] for row in await costs(inside)] == [pytest.approx(0.5)]


async def test_days_groups_and_tags_part_the_costs(tmp_path: Path) -> None:
    clock = Clock(datetime(2026, 11, 20, 23, 0, tzinfo=UTC))
    async with emulator_inside(tmp_path, clock, **AT_ONCE) as inside:
        await inside.make_group("other")
        await create(inside, 1, tags={"jobId": "j1"})
        await create(inside, 1, SET.replace(f"/{GROUP}/", "/other/"), tags={"jobId": "j2"})
        await inside.pass_time(3 * 3600, step=600)
        daily = await costs(inside, {"granularity": "Daily"})
        tags = await costs(inside, {"grouping": [{"type": "TagKey", "name": "jobid"}]})
        group = {"grouping": [{"type": "Dimension", "name": "resourcegroup"}]}
        groups = await costs(inside, group)
        tag_filter = {"tags": {"name": "jobId", "operator": "In", "values": ["j2"]}}
        filtered = await costs(inside, group | {"filter": tag_filter})
        scoped = await costs(inside, group, f"{HERE}/resourceGroups/other")

    assert [(row[2], row[1]) for row in daily] == [
        (20261120, pytest.approx(2)),
        (20261121, pytest.approx(4)),
    ]
    assert [row[2:4] for row in tags] == [["jobid", "j1"], ["jobid", "j2"]]
    assert [row[2] for row in groups] == ["other", GROUP]
    assert [row[2] for row in filtered] == [row[2] for row in scoped] == ["other"]


async def test_an_hour_costs_what_it_cost_when_it_began(tmp_path: Path) -> None:
    every_other_day = {
        "region": "eastus",
        "size": "Standard_ND96amsr_A100_v4",
        "kind": "trace",
        "data": [10, 5],
        "gap_seconds": 86_400,
        "start": "2026-11-20T00:00:00Z",
    }
    clock = Clock(datetime(2026, 11, 20, 22, 30, tzinfo=UTC))
    async with emulator_inside(tmp_path, clock, **AT_ONCE) as inside:
        await inside.arm.post("/_emulator/spotCapacity", json=every_other_day)
        price = inside.fabric.spot_capacity.spot_price
        before, after = (
            float(price("eastus", "Standard_ND96amsr_A100_v4", clock().timestamp() + wait) or 0)
            for wait in (0, 7200)
        )
        await create(inside, 1)
    clock.advance(hours=2)  # the emulator does not run at midnight
    async with emulator_inside(tmp_path, clock, **AT_ONCE) as inside:
        await inside.fabric.step()
        ((cost, hours, _),) = await costs(inside)

    assert after == SPOT < before
    assert hours == pytest.approx(2)
    assert cost == pytest.approx(1.5 * before + 0.5 * after)


async def test_who_asks_too_often_is_told_when_to_come_back(tmp_path: Path) -> None:
    async with emulator_inside(tmp_path, Clock(), throttling="azure") as inside:
        for _ in range(12):
            await costs(inside)
        refused = await inside.arm.post(f"{HERE}{COSTS}", json=QUERY)
        wait = refused.headers["x-ms-ratelimit-microsoft.costmanagement-qpu-retry-after"]
        await inside.pass_time(int(wait))
        await costs(inside)

    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "429")
    assert "retry-after" not in refused.headers


LIFE = st.lists(
    st.tuples(
        st.sampled_from(["evict", "scale", "delete", "restart", "wait"]), st.integers(1, 900)
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(life=LIFE)
async def test_costs_are_the_lives_of_the_machines(
    tmp_path_factory: pytest.TempPathFactory, life: list[tuple[str, int]]
) -> None:
    """Whatever happens, what is told is the seconds that somebody who watches counts."""
    folder, clock, seconds = tmp_path_factory.mktemp("azure"), Clock(), 0
    quick = AT_ONCE | {"notice_seconds": 0}
    for action, wait in [("scale", 5), *life]:
        async with emulator_inside(folder, clock, **quick) as inside:
            if action == "scale":
                await create(inside, 1 + wait % 3)
            elif action == "delete":
                await inside.arm.delete(SET)
            elif action == "evict":
                first = next(iter(inside.fabric.instances()), None)
                if first:
                    number = first[1].instance_id
                    await inside.arm.post(f"{SET}/virtualMachines/{number}/simulateEviction")
            for _ in range(2):  # what is due leads to what is due at once
                await inside.fabric.step()
            seconds += wait * sum(i.phase == "allocated" for _, i in inside.fabric.instances())
            clock.advance(seconds=wait)
            await inside.fabric.step()
            reported = sum(row[1] for row in await costs(inside))

        assert reported * 3600 == pytest.approx(seconds, abs=1e-3)
