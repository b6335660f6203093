"""What a scale set's provisioning state says while things go on beside each other."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from emulator.core.state import InstanceRow
from tests.clock import Clock
from tests.emulated.inside import SET, Inside, emulator_inside
from tests.emulated.process import scale_set

SIZE = "Standard_ND96amsr_A100_v4"


@pytest.fixture
async def inside(tmp_path: Path) -> AsyncIterator[Inside]:
    async with emulator_inside(tmp_path, Clock(), create_seconds=6, delete_seconds=3) as made:
        await made.make_group()
        await made.arm.put(SET, json=scale_set(2))
        await made.pass_time(6)
        yield made


async def leave_room(inside: Inside, count: int) -> None:
    room = {"region": "eastus", "vm_size": SIZE, "available": count}
    (await inside.arm.post("/_emulator/capacity", json=room)).raise_for_status()


async def restore(inside: Inside, count: int = 1) -> int:
    order = {"scale_set": "rk-1", "count": count}
    return (await inside.arm.post("/_emulator/restore", json=order)).status_code


async def seen(inside: Inside) -> tuple[str, int, int]:
    """Its provisioning state, its capacity, and how many instances there are."""
    body: dict[str, Any] = (await inside.arm.get(SET)).json()
    listed = (await inside.arm.get(f"{SET}/virtualMachines")).json()["value"]
    return body["properties"]["provisioningState"], body["sku"]["capacity"], len(listed)


async def test_a_restore_takes_no_room_that_a_put_fails_for(inside: Inside) -> None:
    await leave_room(inside, 1)
    await restore(inside)
    made = await inside.arm.put(SET, json=scale_set(5))
    await inside.pass_time(6)

    told = (await inside.follow(made.headers["Azure-AsyncOperation"])).json()
    assert told["error"]["code"] == "AllocationFailed"
    assert await seen(inside) == ("Failed", 5, 3)


async def test_a_restore_in_vain_is_no_failure_of_the_scale_set(inside: Inside) -> None:
    await leave_room(inside, 0)
    await restore(inside, 2)
    await inside.pass_time(6)

    assert await seen(inside) == ("Succeeded", 2, 2)


async def test_nothing_is_restored_beyond_the_quota_or_while_it_is_deleted(inside: Inside) -> None:
    assert await restore(inside, 9) == 409
    assert await restore(inside, 10**9) == 400
    await inside.arm.delete(SET)

    assert await restore(inside) == 409
    await inside.pass_time(3)
    assert (await inside.arm.get(SET)).status_code == 404


async def test_a_failed_put_is_not_forgotten_when_a_deletion_ends(inside: Inside) -> None:
    await leave_room(inside, 0)
    await inside.arm.put(SET, json=scale_set(3))
    await inside.pass_time(5)
    await inside.arm.post(f"{SET}/delete", json={"instanceIds": ["0"]})
    await inside.pass_time(1)
    assert await seen(inside) == ("Updating", 3, 2)
    view = (await inside.arm.get(f"{SET}/instanceView")).json()
    assert view["statuses"][0]["code"] == "ProvisioningState/updating"

    await inside.pass_time(2)
    assert await seen(inside) == ("Failed", 2, 1)
    view = (await inside.arm.get(f"{SET}/instanceView")).json()
    assert view["statuses"][0]["code"] == "ProvisioningState/failed/AllocationFailed"


async def test_an_order_to_one_vm_is_its_own_affair(inside: Inside) -> None:
    await inside.arm.post(f"{SET}/virtualMachines/0/restart")

    assert (await seen(inside))[0] == "Succeeded"
    shown = (await inside.arm.get(f"{SET}/virtualMachines/0")).json()
    assert shown["properties"]["provisioningState"] == "Updating"


async def test_a_deletion_that_fails_leaves_no_instance_that_waits_for_ever(inside: Inside) -> None:
    await inside.arm.put(SET, json=scale_set(3))
    await inside.arm.post("/_emulator/faults", json={"kind": "delete_fails"})
    await inside.arm.delete(SET)
    assert (await seen(inside))[0] == "Deleting"

    await inside.pass_time(9)
    assert await seen(inside) == ("Failed", 3, 2)


@pytest.mark.parametrize("doom", ["evicted", "deleted"])
async def test_scaling_in_takes_first_what_is_on_its_way_out(inside: Inside, doom: str) -> None:
    await inside.arm.put(SET, json=scale_set(1))
    await inside.pass_time(5)
    inside.fabric.state.change(one(inside, "0"), doom=doom)
    await inside.pass_time(1)

    assert await seen(inside) == ("Succeeded", 1, 1)
    assert one(inside, "1").phase == "allocated"


def one(inside: Inside, name: str) -> InstanceRow:
    (each,) = inside.fabric.state.scale_sets.values()
    return each.instances[name]
