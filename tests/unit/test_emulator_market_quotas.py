"""Quotas of a region: what is used, what is asked for, what is in force."""

from pathlib import Path

import httpx

from tests.clock import Clock
from tests.emulator_inside import HERE, Inside, emulator_inside
from tests.emulator_process import GROUP, scale_set

LOCATION = f"{HERE}/providers/Microsoft.Compute/locations/eastus"
QUOTA = f"{LOCATION}/providers/Microsoft.Quota"
SET = f"{HERE}/resourceGroups/{GROUP}/providers/Microsoft.Compute/virtualMachineScaleSets/rk-1"
SPOT = "lowPriorityCores"


async def ask(inside: Inside, limit: object, name: str = SPOT) -> httpx.Response:
    body = {"properties": {"limit": {"limitObjectType": "LimitValue", "value": limit}}}
    return await inside.arm.put(f"{QUOTA}/quotas/{name}", json=body)


async def limit_of(inside: Inside, name: str = SPOT) -> int:
    shown = (await inside.arm.get(f"{QUOTA}/quotas/{name}")).raise_for_status().json()
    return int(shown["properties"]["limit"]["value"])


async def used(inside: Inside, name: str = SPOT) -> tuple[int, int]:
    """What Microsoft.Compute and Microsoft.Quota say."""
    rows = (await inside.arm.get(f"{LOCATION}/usages")).raise_for_status().json()["value"]
    other = (await inside.arm.get(f"{QUOTA}/usages/{name}")).raise_for_status().json()
    mine = next(row["currentValue"] for row in rows if row["name"]["value"] == name)
    return mine, other["properties"]["usages"]["value"]


async def test_a_node_holds_96_cores_even_when_it_is_deallocated(tmp_path: Path) -> None:
    async with emulator_inside(tmp_path, Clock()) as inside:
        await inside.make_group()
        kept = scale_set(2, evictionPolicy="Deallocate", storageProfile={})
        (await inside.arm.put(SET, json=kept)).raise_for_status()
        await inside.pass_time(5)
        assert await used(inside) == (192, 192)
        await inside.arm.post(f"{SET}/virtualMachines/0/simulateEviction")
        await inside.pass_time(40)
        vm = await inside.arm.get(f"{SET}/virtualMachines/0/instanceView")
        assert "deallocated" in vm.text
        assert await used(inside) == (192, 192)


async def test_a_raise_is_granted_after_a_moment_and_then_holds(tmp_path: Path) -> None:
    async with emulator_inside(tmp_path, Clock(), spot_quota=96, quota_seconds=30) as inside:
        await inside.make_group()
        refused = await inside.arm.put(SET, json=scale_set(2))
        accepted = await ask(inside, 192)
        await inside.pass_time(29)
        assert await limit_of(inside) == 96
        await inside.pass_time(2)
        taken = await inside.arm.put(SET, json=scale_set(2))
        assert await limit_of(inside) == 192
        done = (await inside.arm.get(accepted.headers["location"])).json()
        listed = (await inside.arm.get(f"{QUOTA}/quotaRequests")).json()["value"]

    assert "exceeding approved LowPriorityCores quota" in refused.json()["error"]["message"]
    assert accepted.status_code == 202
    assert accepted.json()["properties"]["provisioningState"] == "InProgress"
    assert taken.status_code == 201
    assert done["properties"]["provisioningState"] == "Succeeded"
    assert [row["id"] for row in listed] == [done["id"]]


async def test_what_was_granted_outlives_a_restart(tmp_path: Path) -> None:
    clock = Clock()
    async with emulator_inside(tmp_path, clock, spot_quota=96) as inside:
        await ask(inside, 200)
    async with emulator_inside(tmp_path, clock, spot_quota=96) as inside:
        await inside.pass_time(61)
    async with emulator_inside(tmp_path, clock, spot_quota=96) as inside:
        assert await limit_of(inside) == 200


async def test_too_much_is_refused(tmp_path: Path) -> None:
    async with emulator_inside(tmp_path, Clock(), quota_ceiling=500) as inside:
        asked = await ask(inside, 501)
        await inside.pass_time(61)
        failed = (await inside.arm.get(asked.headers["location"])).json()["properties"]
        assert await limit_of(inside) == 1000

    assert (failed["provisioningState"], failed["error"]["code"]) == ("Failed", "ContactSupport")


async def test_each_subscription_has_its_own_quota(tmp_path: Path) -> None:
    async with emulator_inside(tmp_path, Clock()) as inside:
        await inside.make_group()
        await inside.arm.put(SET, json=scale_set(1))
        other = LOCATION.replace("000000000001", "000000000002")
        rows = (await inside.arm.get(f"{other}/usages")).json()["value"]

    assert {row["currentValue"] for row in rows} == {0}


async def test_regular_cores_count_in_the_region_and_the_family(tmp_path: Path) -> None:
    async with emulator_inside(tmp_path, Clock()) as inside:
        await inside.make_group()
        body = scale_set(1, priority="Regular")
        for name in ("evictionPolicy", "billingProfile"):
            del body["properties"]["virtualMachineProfile"][name]
        (await inside.arm.put(SET, json=body)).raise_for_status()
        assert await used(inside) == (0, 0)
        assert await used(inside, "cores") == (96, 96)
        assert await used(inside, "StandardNDAMSv4_A100Family") == (96, 96)
        asked = await ask(inside, 1, "cores")

    assert asked.json()["error"]["code"] == "QuotaReductionNotSupported"


async def test_what_is_no_quota_is_refused(tmp_path: Path) -> None:
    async with emulator_inside(tmp_path, Clock()) as inside:
        assert (await ask(inside, 1, "hopes")).json()["error"]["code"] == "InvalidResourceName"
        for limit in (None, "many", -1, True, 2**40):
            assert (await ask(inside, limit)).json()["error"]["code"] == "InvalidQuotaRequest"
        nowhere = QUOTA.replace("eastus", "mars")
        assert (await inside.arm.get(f"{nowhere}/quotas")).status_code == 400
        assert (await inside.arm.get(f"{QUOTA}/quotaRequests/none")).status_code == 404
