"""What changing capacity does to scale sets: days of it, on a clock that the test moves."""

import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emulator.capacity.traces import DAY
from emulator.core.state import ScaleSetRow
from tests.clock import Clock
from tests.emulated.inside import SETS, Inside, emulator_inside
from tests.emulated.process import scale_set

NOON = "2026-11-20T12:00:00Z"  # where the tests' clock begins
QUOTA = 96 * 100


def trace(*minutes: int, **members: object) -> dict[str, Any]:
    """Capacity in eastus, a count per minute from noon on; the last one stays for long."""
    data = [*minutes, *minutes[-1:] * 10_000]
    entry = {"region": "eastus", "kind": "trace", "data": data, "gap_seconds": 60, "start": NOON}
    return entry | {"without_notice": 0} | members


@asynccontextmanager
async def scarce(
    folder: Path, clock: Clock, *entries: dict[str, Any], spot_quota: int = 1000
) -> AsyncIterator[Inside]:
    """Run an emulator with these entries in its capacity file."""
    file = folder / "given.json"
    file.write_text(json.dumps(entries))
    async with emulator_inside(folder, clock, spot_capacity=file, spot_quota=spot_quota) as inside:
        yield inside


async def put(inside: Inside, count: int, name: str = "rk-1", **members: Any) -> int:  # noqa: ANN401 - JSON
    body = scale_set(count)
    body["properties"] |= members.pop("properties", {})
    body["properties"]["virtualMachineProfile"] |= members.pop("profile", {})
    return (await inside.arm.put(f"{SETS}/{name}", json=body | members)).status_code


async def ids(inside: Inside, name: str = "rk-1") -> list[str]:
    machines = (await inside.arm.get(f"{SETS}/{name}/virtualMachines")).json()["value"]
    return [vm["instanceId"] for vm in machines]


async def capacity(inside: Inside, name: str = "rk-1") -> int:
    return int((await inside.arm.get(f"{SETS}/{name}")).json()["sku"]["capacity"])


def scale_set_row(inside: Inside, name: str = "rk-1") -> ScaleSetRow:
    return next(s for s in inside.fabric.state.scale_sets.values() if s.name == name)


async def failure(inside: Inside, name: str = "rk-1") -> str:
    view = (await inside.arm.get(f"{SETS}/{name}/instanceView")).json()
    return str(view["statuses"][0]["code"])


async def test_a_burst_takes_its_victims_when_the_capacity_is_gone(
    tmp_path: Path, clock: Clock
) -> None:
    async with scarce(tmp_path, clock, trace(4, 4, 4, 4, 1)) as inside:
        assert await put(inside, 4) == 201
        await inside.pass_time(208)
        assert not any(i.eviction for i in scale_set_row(inside).instances.values())

        await inside.pass_time(2)  # 30 seconds before the fourth minute is over
        begin = datetime.fromisoformat(NOON).timestamp()
        evicted = [i for i in scale_set_row(inside).instances.values() if i.eviction]
        assert [i.eviction.not_before - begin for i in evicted if i.eviction] == [240.0] * 3
        events = await inside.metadata.get(
            f"/vm/{evicted[0].token}/metadata/scheduledevents",
            params={"api-version": "2020-07-01"},
            headers={"Metadata": "true"},
        )
        assert [e["EventType"] for e in events.json()["Events"]] == ["Preempt"]

        await inside.pass_time(30)
        assert len(await ids(inside)) == 1
        assert await capacity(inside) == 1


async def test_some_evictions_come_without_notice_the_same_in_every_run(tmp_path: Path) -> None:
    runs = []
    for name in ("first", "second"):
        (folder := tmp_path / name).mkdir()
        entry = trace(40, 0, without_notice=0.5)
        async with scarce(folder, Clock(), entry, spot_quota=QUOTA) as inside:
            await put(inside, 30)
            await inside.pass_time(31)
            evictions = [i.eviction for i in scale_set_row(inside).instances.values()]
            runs.append([e.announced for e in evictions if e])
            await inside.pass_time(30)
            assert await ids(inside) == []

    assert len(runs[0]) == 30
    assert 5 < sum(runs[0]) < 25
    assert runs[0] == runs[1]


async def test_the_newest_go_first_where_the_entry_says_so(tmp_path: Path, clock: Clock) -> None:
    async with scarce(tmp_path, clock, trace(4, 4, 2, victims="newest")) as inside:
        await put(inside, 2)
        await inside.pass_time(10)
        await put(inside, 4)
        await inside.pass_time(120)
        assert await ids(inside) == ["0", "1"]


async def test_an_order_beyond_the_capacity_fails_whole_or_gets_what_there_is(
    tmp_path: Path, clock: Clock
) -> None:
    all_or_none = trace(3, partial=0)
    zone = trace(3, partial=1, zone="1")
    async with scarce(tmp_path, clock, all_or_none, zone) as inside:
        assert await put(inside, 4, "whole") == 201
        assert await put(inside, 4, "some", zones=["1"]) == 201
        await inside.pass_time(4)

        assert await ids(inside, "whole") == []
        assert await failure(inside, "whole") == "ProvisioningState/failed/AllocationFailed"
        assert await ids(inside, "some") == ["0", "1", "2"]
        assert await failure(inside, "some") == "ProvisioningState/failed/ZonalAllocationFailed"


async def test_no_room_is_given_that_azure_knows_to_be_short_lived(
    tmp_path: Path, clock: Clock
) -> None:
    async with scarce(tmp_path, clock, trace(4, 0)) as inside:
        await inside.pass_time(40)
        assert await put(inside, 1) == 201
        await inside.pass_time(4)
        assert await failure(inside) == "ProvisioningState/failed/AllocationFailed"


async def test_where_nothing_is_left_the_order_is_refused_at_once(
    tmp_path: Path, clock: Clock
) -> None:
    async with scarce(tmp_path, clock, trace(0)) as inside:
        response = await inside.arm.put(f"{SETS}/rk-1", json=scale_set(1))
        assert (response.status_code, response.json()["error"]["code"]) == (409, "SkuNotAvailable")
        on_demand = {"priority": "Regular", "evictionPolicy": None, "billingProfile": None}
        assert await put(inside, 1, profile=on_demand) == 201  # the entry is for Spot
        assert await put(inside, 0, "empty") == 201


RESTORE = {"spotRestorePolicy": {"enabled": True, "restoreTimeout": "PT10M"}}


async def test_every_zone_has_its_own_capacity(tmp_path: Path, clock: Clock) -> None:
    async with scarce(
        tmp_path, clock, trace(2, 2, 0, zone="1"), trace(2, 2, 2, zone="2")
    ) as inside:
        wide = {"singlePlacementGroup": False}
        sku = {"name": "Standard_NC24ads_A100_v4", "tier": "Standard", "capacity": 4}
        await put(inside, 4, sku=sku, zones=["1", "2"], properties=wide | RESTORE)
        await inside.pass_time(200)
        assert {i.zone for i in scale_set_row(inside).instances.values()} == {"2"}
        assert len(await ids(inside)) == 2


async def test_who_bids_less_than_the_price_is_evicted(tmp_path: Path, clock: Clock) -> None:
    days = {"region": "eastus", "kind": "trace", "data": [9, 5], "gap_seconds": DAY}
    low, high = {"billingProfile": {"maxPrice": 8.5}}, {"billingProfile": {"maxPrice": 32}}
    async with scarce(tmp_path, clock, days | {"start": "2026-11-19T00:00:00Z"}) as inside:
        await put(inside, 1, "low", profile=low)
        await put(inside, 1, "high", profile=high)
        await inside.pass_time(DAY / 2 - 10, step=60)
        assert len(await ids(inside, "low")) == 1
        await inside.pass_time(60)  # a day that had less is over: the price has risen
        assert (await ids(inside, "low"), len(await ids(inside, "high"))) == ([], 1)


async def test_capacity_can_be_posted_listed_and_removed(tmp_path: Path, clock: Clock) -> None:
    async with emulator_inside(tmp_path, clock) as inside:
        await put(inside, 2)
        await inside.pass_time(5)
        entry = trace(1) | {"start": "now"}
        posted = await inside.arm.post("/_emulator/spotCapacity", json=[entry])  # as in a file
        assert posted.status_code == 201
        rules = (await inside.arm.get("/_emulator/spotCapacity")).json()["value"]
        assert [(row["kind"], row["capacity_now"]) for row in rules] == [("trace", 1)]
        await inside.pass_time(31)
        assert len(await ids(inside)) == 1

        refused = await inside.arm.post(
            "/_emulator/spotCapacity", json={"value": [{"kind": "snow"}]}
        )
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "InvalidParameter")
        cleared = await inside.arm.delete("/_emulator/spotCapacity", params={"region": "eastus"})
        assert cleared.json() == {"cleared": 1}
        assert await put(inside, 5) == 200
        await inside.pass_time(5)
        assert len(await ids(inside)) == 5


async def week(folder: Path, seed: int, step: float) -> list[tuple[float, str]]:
    """When which instance was evicted, in a week of scarce capacity for two scale sets."""
    clock = Clock()
    rule = {"region": "*", "kind": "random", "seed": seed, "total": 24, "without_notice": 0.2}
    evictions: list[tuple[float, str]] = []
    before: set[str] = set()
    async with scarce(folder, clock, rule, spot_quota=QUOTA) as inside:
        for _ in range(7 * 24):
            for name in ("a", "b"):
                await put(inside, 10, name, properties=RESTORE)
            for _ in range(int(3600 / step)):
                await inside.pass_time(step, step)
                _check(inside)
                now = {s.vm_name(i) for s, i in inside.fabric.instances() if i.eviction}
                evictions += sorted((clock().timestamp(), name) for name in now - before)
                before = now
    return evictions


@settings(max_examples=5, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 1000))
async def test_scale_sets_never_hold_more_than_there_is(seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        evicted = await week(Path(folder), seed, step=300)
    assert evicted, "there were machines"


def _check(inside: Inside) -> None:
    """Check that the VMs that stay allocated fit the capacity of now and of the next 30 seconds."""
    now = inside.fabric.now()
    staying = [
        (s, i)
        for s, i in inside.fabric.instances()
        if i.phase == "allocated" and not i.eviction and not i.doom
    ]
    for scale_set_, instance in staying:
        pool = inside.fabric.spot_capacity.pool(scale_set_, instance)
        assert pool
        assert len(staying) <= pool.lowest(now, now + 30)


async def test_who_bids_less_than_the_price_of_the_day_is_refused(
    tmp_path: Path, clock: Clock
) -> None:
    days = {"region": "eastus", "kind": "trace", "data": [5, 9], "gap_seconds": DAY}
    async with emulator_inside(tmp_path, clock) as inside:
        scarce = days | {"start": "2026-11-19T00:00:00Z"}
        await inside.arm.post("/_emulator/spotCapacity", json=scarce)
        bid = {"billingProfile": {"maxPrice": 8.5}}
        refused = await put(inside, 1, profile=bid)
        (await inside.metadata.delete("/_emulator/spotCapacity")).raise_for_status()

        assert (refused, await put(inside, 1, profile=bid)) == (409, 201)


async def test_the_admins_limit_holds_too(tmp_path: Path, clock: Clock) -> None:
    async with scarce(tmp_path, clock, trace(9)) as inside:
        limit = {"region": "eastus", "vm_size": "Standard_ND96amsr_A100_v4", "available": 2}
        (await inside.arm.post("/_emulator/capacity", json=limit)).raise_for_status()
        await put(inside, 2, "first")
        await inside.pass_time(4)
        await put(inside, 1, "second")
        await inside.pass_time(4)
        assert (await ids(inside, "first"), await ids(inside, "second")) == (["0", "1"], [])
