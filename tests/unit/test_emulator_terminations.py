"""Regular VMs whose scale set asks for it are told before they are deleted."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.clock import Clock
from tests.emulator_inside import HERE, Inside, emulator_inside
from tests.emulator_process import GROUP, scale_set

GROUP_URL = f"{HERE}/resourceGroups/{GROUP}"
SET = f"{GROUP_URL}/providers/Microsoft.Compute/virtualMachineScaleSets/rk-1"
TOLD = {"terminateNotificationProfile": {"enable": True, "notBeforeTimeout": "PT10M"}}


@pytest.fixture
async def inside(tmp_path: Path) -> AsyncIterator[Inside]:
    async with emulator_inside(tmp_path, Clock()) as made:
        await made.make_group()
        body = scale_set(2, scheduledEventsProfile=TOLD)
        for name in ("priority", "evictionPolicy", "billingProfile"):
            del body["properties"]["virtualMachineProfile"][name]
        (await made.arm.put(SET, json=body)).raise_for_status()
        await made.pass_time(5)
        yield made


def living(inside: Inside) -> list[str]:
    return [vm.instance_id for _, vm in inside.fabric.instances()]


async def events(inside: Inside, number: int) -> list[dict[str, Any]]:
    answer = await inside.metadata.get(**asked(inside, number))
    rows: list[dict[str, Any]] = answer.raise_for_status().json()["Events"]
    return rows


def asked(inside: Inside, number: int) -> dict[str, Any]:
    _, vm = list(inside.fabric.instances())[number]
    url = f"/vm/{vm.token}/metadata/scheduledevents"
    return {
        "url": url,
        "headers": {"Metadata": "true"},
        "params": {"api-version": "2020-07-01"},
    }


@pytest.mark.parametrize("url", [SET, GROUP_URL])
async def test_what_is_deleted_lives_until_its_notice_is_over(inside: Inside, url: str) -> None:
    await inside.arm.delete(url)
    (event,) = await events(inside, 0)
    await inside.pass_time(590, step=10)
    state = (await inside.arm.get(SET)).json()["properties"]["provisioningState"]
    assert (event["EventType"], event["EventSource"], state) == ("Terminate", "User", "Deleting")
    assert living(inside) == ["0", "1"]

    await inside.pass_time(13)
    assert living(inside) == []
    assert (await inside.arm.get(SET)).status_code == 404


async def test_who_agrees_is_deleted_at_once(inside: Inside) -> None:
    ordered = await inside.arm.post(f"{SET}/delete", json={"instanceIds": ["1"]})
    (event,) = await events(inside, 1)
    assert await events(inside, 0) == []
    await inside.pass_time(60)
    assert living(inside) == ["0", "1"]

    agreed = {"StartRequests": [{"EventId": event["EventId"]}]}
    (await inside.metadata.post(**asked(inside, 1), json=agreed)).raise_for_status()
    await inside.pass_time(2)
    assert living(inside) == ["0"]
    address = ordered.headers["Azure-AsyncOperation"]
    assert (await inside.follow(address)).json()["status"] == "Succeeded"
    assert (await inside.arm.get(SET)).json()["sku"]["capacity"] == 1


async def test_a_deletion_by_force_asks_nobody(inside: Inside) -> None:
    await inside.arm.delete(SET, params={"api-version": "2026-04-01", "forceDeletion": "true"})
    await inside.pass_time(4)

    assert living(inside) == []


async def test_a_second_deletion_gives_no_second_notice(inside: Inside) -> None:
    await inside.arm.delete(f"{SET}/virtualMachines/0")
    await inside.pass_time(60)
    await inside.arm.delete(SET)

    assert [len(await events(inside, number)) for number in (0, 1)] == [1, 1]
    await inside.pass_time(543, step=3)
    assert living(inside) == ["1"]
    await inside.pass_time(60)
    assert (await inside.arm.get(SET)).status_code == 404
