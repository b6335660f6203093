"""What PUT, PATCH and DELETE make of a scale set."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.clock import Clock
from tests.emulated.inside import SET, SETS, Inside, emulator_inside
from tests.emulated.process import scale_set


@pytest.fixture
async def inside(tmp_path: Path) -> AsyncIterator[Inside]:
    """Yield an emulator with one scale set of two running VMs."""
    async with emulator_inside(tmp_path, Clock()) as running:
        await running.make_group()
        (await running.arm.put(SET, json=scale_set(2))).raise_for_status()
        await running.pass_time(4)
        yield running


async def shown(inside: Inside) -> dict[str, Any]:
    body: dict[str, Any] = (await inside.arm.get(SET)).raise_for_status().json()
    return body


async def ids(inside: Inside) -> list[str]:
    rows = (await inside.arm.get(f"{SET}/virtualMachines")).raise_for_status().json()["value"]
    return [row["instanceId"] for row in rows]


def error(answer: httpx.Response) -> tuple[int, str, str | None]:
    body = answer.json()["error"]
    return answer.status_code, body["code"], body.get("target")


async def test_a_patch_changes_only_what_it_names(inside: Inside) -> None:
    before = await shown(inside)
    policy = {"upgradePolicy": {"mode": "automatic"}}
    changes = {"tags": {"a": "b"}, "sku": {"capacity": 3}, "properties": policy}
    answer = await inside.arm.patch(SET, json=changes)
    assert answer.status_code == 200
    assert "azure-asyncoperation" in answer.headers
    assert answer.json()["properties"]["provisioningState"] == "Updating"
    await inside.pass_time(4)

    after = await shown(inside)
    assert after["tags"] == {"a": "b"}
    assert after["sku"] == {**before["sku"], "capacity": 3}
    assert after["properties"] == {
        **before["properties"],
        "upgradePolicy": {"mode": "Automatic"},  # Azure's spelling, whatever came
    }
    assert await ids(inside) == ["0", "1", "2"]
    operation = (await inside.arm.get(answer.headers["azure-asyncoperation"])).json()
    assert operation["status"] == "Succeeded"


async def test_a_single_placement_group_is_given_up_once_and_for_all(inside: Inside) -> None:
    given_up = {"properties": {"singlePlacementGroup": False}}
    assert (await inside.arm.patch(SET, json=given_up)).status_code == 200
    await inside.pass_time(4)
    again = await inside.arm.patch(SET, json={"properties": {"singlePlacementGroup": True}})
    assert error(again) == (409, "PropertyChangeNotAllowed", "singlePlacementGroup")


async def test_writes_are_held_to_the_etag(inside: Inside) -> None:
    old = (await shown(inside))["etag"]
    tags = {"tags": {"a": "b"}}
    first = await inside.arm.patch(SET, json=tags, headers={"If-Match": old})
    assert first.status_code == 200
    stale = {"If-Match": old}
    assert error(await inside.arm.patch(SET, json=tags, headers=stale))[0] == 412
    assert error(await inside.arm.put(SET, json=scale_set(2), headers=stale))[0] == 412
    assert error(await inside.arm.delete(SET, headers=stale))[:2] == (412, "PreconditionFailed")
    fresh = {"If-Match": (await shown(inside))["etag"]}
    assert (await inside.arm.delete(SET, headers=fresh)).status_code == 202
    only_new = {"If-None-Match": "*"}
    body = scale_set(0)
    assert (await inside.arm.put(f"{SETS}/new", json=body, headers=only_new)).status_code == 201
    assert (await inside.arm.put(f"{SETS}/new", json=body, headers=only_new)).status_code == 412


async def test_instances_keep_the_model_that_they_were_made_from(inside: Inside) -> None:
    async def latest() -> list[bool]:
        rows = (await inside.arm.get(f"{SET}/virtualMachines")).json()["value"]
        return [row["properties"]["latestModelApplied"] for row in rows]

    data = {"properties": {"virtualMachineProfile": {"userData": "aGVsbG8="}}}
    (await inside.arm.patch(SET, json=data)).raise_for_status()
    await inside.pass_time(4)
    assert await latest() == [False, False]


PRICED = {"virtualMachineProfile": {"billingProfile": {"maxPrice": 20}}}


async def test_the_price_limit_of_vms_that_wait_for_an_upgrade_may_change(inside: Inside) -> None:
    changed = await inside.arm.patch(SET, json={"properties": PRICED})

    assert changed.status_code == 200
    shown = changed.json()["properties"]["virtualMachineProfile"]
    assert shown["billingProfile"] == {"maxPrice": 20}


async def test_the_price_limit_of_running_vms_that_upgrade_by_themselves_stands(
    inside: Inside,
) -> None:
    limit = {"properties": {"upgradePolicy": {"mode": "Automatic"}, **PRICED}}
    answer = await inside.arm.patch(SET, json=limit)
    assert error(answer)[:2] == (409, "MaxPriceChangeNotAllowedForAllocatedVMs")
    assert "'rk-1_0'" in answer.json()["error"]["message"]
