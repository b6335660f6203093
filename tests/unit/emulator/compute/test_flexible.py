"""Flexible scale sets: virtual machines with names."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.clock import Clock
from tests.emulated.inside import HERE, Inside, emulator_inside
from tests.emulated.process import GROUP, scale_set

COMPUTE = f"{HERE}/resourceGroups/{GROUP}/providers/Microsoft.Compute"
SET = f"{COMPUTE}/virtualMachineScaleSets/flex"
VMS = f"{COMPUTE}/virtualMachines"


def flexible(count: int, **properties: object) -> dict[str, Any]:
    body = scale_set(count)
    given = {
        "orchestrationMode": "Flexible",
        "platformFaultDomainCount": 1,
        "virtualMachineProfile": body["properties"]["virtualMachineProfile"],
        **properties,
    }
    body["sku"]["name"] = "Standard_NC24ads_A100_v4"
    return {**body, "properties": {k: v for k, v in given.items() if v is not None}}


@pytest.fixture
async def inside(tmp_path: Path) -> AsyncIterator[Inside]:
    """Yield an emulator with a Flexible scale set of four VMs."""
    async with emulator_inside(tmp_path, Clock()) as running:
        await running.make_group()
        body = flexible(4)
        (await running.arm.put(SET, json=body)).raise_for_status()
        await running.pass_time(4)
        yield running


async def machines(inside: Inside) -> list[dict[str, Any]]:
    of_set = {"$filter": f"'virtualMachineScaleSet/id' eq '{SET}'", "$expand": "instanceView"}
    answer = await inside.arm.get(VMS, params=of_set)
    rows: list[dict[str, Any]] = answer.raise_for_status().json()["value"]
    return rows


def error(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def test_its_instances_are_virtual_machines(inside: Inside) -> None:
    rows = await machines(inside)
    assert len({row["name"] for row in rows}) == 4
    assert all(row["name"].startswith("flex_") for row in rows)
    one = rows[0]
    assert one["id"] == f"{VMS}/{one['name']}"
    assert one["properties"]["virtualMachineScaleSet"] == {"id": SET}
    codes = [s["code"] for s in one["properties"]["instanceView"]["statuses"]]
    assert codes == ["ProvisioningState/succeeded", "PowerState/running"]
    shown = (await inside.arm.get(f"{VMS}/{one['name'].upper()}")).json()
    assert shown["properties"]["vmId"] == one["properties"]["vmId"]
    assert error(await inside.arm.get(f"{VMS}/none")) == (404, "ResourceNotFound")
    everywhere = await inside.arm.get(
        f"{HERE}/providers/Microsoft.Compute/virtualMachines", params={"statusOnly": "true"}
    )
    assert len(everywhere.json()["value"]) == 4


async def test_a_virtual_machine_is_ordered_and_deleted_by_its_name(inside: Inside) -> None:
    one = (await machines(inside))[0]
    assert (await inside.arm.post(f"{one['id']}/powerOff")).status_code == 202
    await inside.pass_time(4)
    view = (await inside.arm.get(f"{one['id']}/instanceView")).json()
    assert view["statuses"][-1]["code"] == "PowerState/stopped"
    assert (await inside.arm.delete(one["id"])).status_code == 202
    await inside.pass_time(4)
    assert (await inside.arm.delete(one["id"])).status_code == 204
    assert len(await machines(inside)) == 3


async def test_what_uniform_ones_answer_is_refused(inside: Inside) -> None:
    view = await inside.arm.get(f"{SET}/instanceView")
    assert error(view) == (400, "BadRequest")
    assert "'VirtualMachineScaleSets.instanceView.GET' is not allowed" in view.text
    query = {"$expand": "instanceView"}
    expanded = await inside.arm.get(f"{SET}/virtualMachines", params=query)
    assert error(expanded) == (400, "BadRequest")
    listed = (await inside.arm.get(f"{SET}/virtualMachines")).json()["value"]
    name = listed[0]["instanceId"]
    one = await inside.arm.get(f"{SET}/virtualMachines/{name}")
    assert one.json()["name"] == name  # it has its name for an id


async def test_flexible_has_defaults_of_its_own(inside: Inside) -> None:
    properties = (await inside.arm.get(SET)).json()["properties"]
    assert properties["singlePlacementGroup"] is False
    assert "overprovision" not in properties
