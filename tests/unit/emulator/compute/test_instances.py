"""Orders to the VMs of a scale set, and the provisioning state meanwhile."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from emulator.core.state import InstanceRow
from tests.clock import Clock
from tests.emulated.inside import SET, Inside, emulator_inside
from tests.emulated.process import scale_set

DURABLE: dict[str, Any] = {"evictionPolicy": "Deallocate", "storageProfile": {"osDisk": {}}}


@pytest.fixture
async def inside(tmp_path: Path) -> AsyncIterator[Inside]:
    """Yield an emulator with three running VMs whose OS disks outlive their host."""
    async with emulator_inside(tmp_path, Clock(), page_size=2) as running:
        (await running.arm.put(SET, json=scale_set(3, **DURABLE))).raise_for_status()
        await running.pass_time(4)
        yield running


async def list_vms(inside: Inside, **query: str) -> list[dict[str, Any]]:
    """All pages of the list."""
    rows: list[dict[str, Any]] = []
    params = httpx.QueryParams({f"${k}": v for k, v in query.items()})
    while True:
        response = await inside.arm.get(f"{SET}/virtualMachines", params=params)
        body = response.raise_for_status().json()
        rows += body["value"]
        if "nextLink" not in body:
            return rows
        params = httpx.URL(body["nextLink"]).params


async def power(inside: Inside) -> dict[str, str]:
    rows = await list_vms(inside, expand="instanceView")
    codes = {r["instanceId"]: r["properties"]["instanceView"]["statuses"][-1]["code"] for r in rows}
    return {name: code.removeprefix("PowerState/") for name, code in codes.items()}


async def order(inside: Inside, action: str, *ids: str) -> httpx.Response:
    body = {"instanceIds": list(ids)} if ids else None
    return await inside.arm.post(f"{SET}/{action}", json=body)


async def outcome(inside: Inside, response: httpx.Response) -> tuple[str, str]:
    """Status and error code of an operation."""
    body = (await inside.arm.get(response.headers["azure-asyncoperation"])).json()
    return body["status"], body.get("error", {}).get("code", "")


def error(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


async def test_a_deallocated_vm_may_find_no_room_to_start(inside: Inside) -> None:
    await order(inside, "deallocate", "0")
    await inside.pass_time(4)
    full = {"region": "eastus", "vm_size": "Standard_ND96amsr_A100_v4", "available": 0}
    (await inside.arm.post("/_emulator/capacity", json=full)).raise_for_status()
    start = await order(inside, "start", "0")
    await inside.pass_time(4)
    assert await outcome(inside, start) == ("Failed", "AllocationFailed")
    assert (await power(inside))["0"] == "deallocated"


async def test_what_is_off_can_neither_restart_nor_move(inside: Inside) -> None:
    await order(inside, "powerOff", "0")
    await inside.pass_time(4)
    assert error(await order(inside, "restart", "0")) == (409, "OperationNotAllowed")
    assert error(await order(inside, "redeploy", "0")) == (409, "OperationNotAllowed")


async def test_a_newer_order_overtakes_an_older_one(inside: Inside) -> None:
    first = await order(inside, "deallocate", "0")
    second = await order(inside, "powerOff", "0")
    await inside.pass_time(4)
    assert await outcome(inside, first) == ("Canceled", "OperationPreempted")
    assert await outcome(inside, second) == ("Succeeded", "")
    assert (await power(inside))["0"] == "stopped"


async def test_deleted_instances_take_the_capacity_with_them(inside: Inside) -> None:
    first = await inside.arm.delete(f"{SET}/virtualMachines/0")
    assert first.status_code == 202
    state = (await inside.arm.get(f"{SET}/virtualMachines/0")).json()["properties"]
    assert state["provisioningState"] == "Deleting"
    await inside.pass_time(3)
    assert (await inside.arm.delete(f"{SET}/virtualMachines/0")).status_code == 204
    unknown = await order(inside, "delete", "0")
    assert error(unknown) == (400, "InvalidParameter")
    forced = await inside.arm.post(
        f"{SET}/delete", json={"instanceIds": ["1"]}, params={"forceDeletion": "true"}
    )
    assert forced.status_code == 202
    await inside.pass_time(0.01)
    assert list(await power(inside)) == ["2"]
    assert (await inside.arm.get(SET)).json()["sku"]["capacity"] == 1


async def test_the_view_of_a_scale_set_counts_its_instances(inside: Inside) -> None:
    await order(inside, "deallocate", "0")
    view = (await inside.arm.get(f"{SET}/instanceView")).json()
    counts = {s["code"]: s["count"] for s in view["virtualMachine"]["statusesSummary"]}
    assert counts == {"ProvisioningState/updating": 1, "ProvisioningState/succeeded": 2}


LOGS = f"{SET}/virtualMachines/0/retrieveBootDiagnosticsData"
DIAGNOSED: dict[str, Any] = {"diagnosticsProfile": {"bootDiagnostics": {"enabled": True}}}


async def test_a_serial_log_is_had_by_its_url_alone_and_for_its_time(inside: Inside) -> None:
    body = scale_set(3, **DURABLE, **DIAGNOSED)
    (await inside.arm.put(SET, json=body)).raise_for_status()
    await inside.pass_time(4)
    minutes = "sasUriExpirationTimeInMinutes"
    response = await inside.arm.post(LOGS, params={minutes: 1})
    url = response.raise_for_status().json()["serialConsoleLogBlobUri"]
    early = await inside.follow(url)
    _, instance = next(inside.fabric.instances())
    inside.fabric.folder(instance).mkdir(parents=True)
    (inside.fabric.folder(instance) / "console.log").write_text("kernel: hello")
    first = await inside.follow(url)
    forged = await inside.follow(url.replace("sig=", "sig=0"))
    await inside.pass_time(61, step=61)
    expired = await inside.follow(url)

    assert error(early) == (404, "BlobNotFound")
    assert first.text == "kernel: hello"
    assert error(forged) == error(expired) == (403, "AuthenticationFailed")
    assert error(await inside.arm.post(LOGS, params={minutes: 1441}))[0] == 400


SIZE = "Standard_ND96amsr_A100_v4"


@pytest.fixture
async def slow(tmp_path: Path) -> AsyncIterator[Inside]:
    async with emulator_inside(tmp_path, Clock(), create_seconds=6, delete_seconds=3) as emulator:
        await emulator.arm.put(SET, json=scale_set(2))
        await emulator.pass_time(6)
        yield emulator


async def leave_room(slow: Inside, count: int) -> None:
    room = {"region": "eastus", "vm_size": SIZE, "available": count}
    (await slow.arm.post("/_emulator/capacity", json=room)).raise_for_status()


async def restore(slow: Inside, count: int = 1) -> int:
    order = {"scale_set": "rk-1", "count": count}
    return (await slow.arm.post("/_emulator/restore", json=order)).status_code


async def set_summary(slow: Inside) -> tuple[str, int, int]:
    """Its provisioning state, its capacity, and how many instances there are."""
    body: dict[str, Any] = (await slow.arm.get(SET)).json()
    listed = (await slow.arm.get(f"{SET}/virtualMachines")).json()["value"]
    return body["properties"]["provisioningState"], body["sku"]["capacity"], len(listed)


async def test_a_restore_takes_no_room_that_a_put_fails_for(slow: Inside) -> None:
    await leave_room(slow, 1)
    await restore(slow)
    overtaken = await slow.arm.put(SET, json=scale_set(4))
    response = await slow.arm.put(SET, json=scale_set(5))
    await slow.pass_time(6)

    assert await outcome(slow, overtaken) == ("Canceled", "OperationPreempted")
    assert await outcome(slow, response) == ("Failed", "AllocationFailed")
    assert error(await slow.follow(response.headers["Location"])) == (409, "AllocationFailed")
    assert await set_summary(slow) == ("Failed", 5, 3)


async def test_a_restore_in_vain_is_no_failure_of_the_scale_set(slow: Inside) -> None:
    await leave_room(slow, 0)
    await restore(slow, 2)
    await slow.pass_time(6)

    assert await set_summary(slow) == ("Succeeded", 2, 2)


async def test_nothing_is_restored_beyond_the_quota_or_while_it_is_deleted(slow: Inside) -> None:
    assert await restore(slow, 9) == 409
    assert await restore(slow, 10**9) == 400
    await slow.arm.delete(SET)

    assert await restore(slow) == 409
    await slow.pass_time(3)
    assert (await slow.arm.get(SET)).status_code == 404


async def test_a_failed_put_is_not_forgotten_when_a_deletion_ends(slow: Inside) -> None:
    await leave_room(slow, 0)
    await slow.arm.put(SET, json=scale_set(3))
    await slow.pass_time(5)
    await slow.arm.post(f"{SET}/delete", json={"instanceIds": ["0"]})
    await slow.pass_time(1)
    assert await set_summary(slow) == ("Updating", 3, 2)
    view = (await slow.arm.get(f"{SET}/instanceView")).json()
    assert view["statuses"][0]["code"] == "ProvisioningState/updating"

    await slow.pass_time(2)
    assert await set_summary(slow) == ("Failed", 2, 1)
    view = (await slow.arm.get(f"{SET}/instanceView")).json()
    assert view["statuses"][0]["code"] == "ProvisioningState/failed/AllocationFailed"


@pytest.mark.parametrize("doom", ["evicted", "deleted"])
async def test_scaling_in_takes_first_what_is_on_its_way_out(slow: Inside, doom: str) -> None:
    await slow.arm.put(SET, json=scale_set(1))
    await slow.pass_time(5)
    slow.fabric.state.change(instance_row(slow, "0"), doom=doom)
    await slow.pass_time(1)

    assert await set_summary(slow) == ("Succeeded", 1, 1)
    assert instance_row(slow, "1").phase == "allocated"


def instance_row(slow: Inside, name: str) -> InstanceRow:
    (scale_set_row,) = slow.fabric.state.scale_sets.values()
    return scale_set_row.instances[name]


async def test_a_restore_shows_as_an_update(slow: Inside) -> None:
    assert await restore(slow) == 200

    assert await set_summary(slow) == ("Updating", 3, 3)
    await slow.pass_time(6)
    assert await set_summary(slow) == ("Succeeded", 3, 3)


async def test_an_order_to_one_vm_is_its_own_affair(slow: Inside) -> None:
    await slow.arm.post(f"{SET}/virtualMachines/0/restart")

    assert (await set_summary(slow))[0] == "Succeeded"
    machine = (await slow.arm.get(f"{SET}/virtualMachines/0")).json()
    assert machine["properties"]["provisioningState"] == "Updating"


async def test_scaling_in_counts_what_restarts(slow: Inside) -> None:
    await slow.arm.put(SET, json=scale_set(1))
    await slow.pass_time(5)
    slow.fabric.state.change(instance_row(slow, "0"), doom="restart")
    await slow.pass_time(1)

    assert await set_summary(slow) == ("Succeeded", 1, 1)


async def test_orders_end_after_a_restart_of_the_emulator(tmp_path: Path) -> None:
    clock = Clock()
    async with emulator_inside(tmp_path, clock) as inside:
        await inside.arm.put(SET, json=scale_set(1, **DURABLE))
        await inside.pass_time(4)
        response = await order(inside, "deallocate")
    async with emulator_inside(tmp_path, clock) as inside:
        await inside.pass_time(4)
        assert await outcome(inside, response) == ("Succeeded", "")
        assert await power(inside) == {"0": "deallocated"}
