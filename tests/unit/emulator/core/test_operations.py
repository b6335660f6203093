"""Long operations as clients poll them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.clock import Clock
from tests.emulated.inside import HERE, Inside, emulator_inside
from tests.emulated.process import GROUP, scale_set

GROUP_URL = f"{HERE}/resourceGroups/{GROUP}"
SET = f"{GROUP_URL}/providers/Microsoft.Compute/virtualMachineScaleSets/rk-1"
NO_ROOM = {"region": "eastus", "vm_size": "Standard_ND96amsr_A100_v4", "available": 0}


@pytest.fixture
async def inside(tmp_path: Path) -> AsyncIterator[Inside]:
    async with emulator_inside(tmp_path, Clock(), create_seconds=60, delete_seconds=30) as made:
        await made.make_group()
        yield made


async def test_a_put_names_both_addresses_and_time_decides(inside: Inside) -> None:
    made = await inside.arm.put(SET, json=scale_set(1))
    status, result = made.headers["Azure-AsyncOperation"], made.headers["Location"]
    assert (made.status_code, made.headers["Retry-After"]) == (201, "1")
    assert result == f"{status}&monitor=true"

    for _ in range(5):  # looking does not hasten it
        early = await inside.follow(status)
        assert (early.json()["status"], early.headers["Retry-After"]) == ("InProgress", "1")
        assert (await inside.follow(result)).status_code == 202
    await inside.pass_time(60)
    late = await inside.follow(status)
    assert late.json()["status"] == "Succeeded"
    assert late.json()["endTime"] > late.json()["startTime"]
    assert "Retry-After" not in late.headers
    assert (await inside.follow(result)).json()["name"] == "rk-1"
    assert (await inside.arm.put(SET, json=scale_set(1))).status_code == 200


async def test_an_operation_without_room_fails_with_a_body(inside: Inside) -> None:
    await inside.arm.post("/_emulator/capacity", json=NO_ROOM)
    made = await inside.arm.put(SET, json=scale_set(1))
    await inside.pass_time(60)

    told = (await inside.follow(made.headers["Azure-AsyncOperation"])).json()
    assert (told["status"], told["error"]["code"]) == ("Failed", "AllocationFailed")
    failed = await inside.follow(made.headers["Location"])
    assert (failed.status_code, failed.json()["error"]) == (409, told["error"])


async def test_a_later_put_cancels_the_one_before(inside: Inside) -> None:
    first = await inside.arm.put(SET, json=scale_set(1))
    await inside.arm.put(SET, json=scale_set(2))

    told = (await inside.follow(first.headers["Azure-AsyncOperation"])).json()
    assert (told["status"], told["error"]["code"]) == ("Canceled", "OperationPreempted")


async def test_a_group_is_deleted_with_a_location_only(inside: Inside) -> None:
    begun = await inside.arm.delete(GROUP_URL)
    assert begun.status_code == 202
    assert "Azure-AsyncOperation" not in begun.headers

    assert (await inside.follow(begun.headers["Location"])).status_code == 202
    await inside.pass_time(30)
    assert (await inside.follow(begun.headers["Location"])).status_code == 200


async def test_operations_live_through_a_restart_and_an_hour(tmp_path: Path) -> None:
    clock = Clock()
    async with emulator_inside(tmp_path, clock, create_seconds=60) as inside:
        await inside.make_group()
        status = (await inside.arm.put(SET, json=scale_set(1))).headers["Azure-AsyncOperation"]
    async with emulator_inside(tmp_path, clock, create_seconds=60) as inside:
        assert (await inside.follow(status)).json()["status"] == "InProgress"
        await inside.pass_time(60)
        assert (await inside.follow(status)).json()["status"] == "Succeeded"

        clock.advance(minutes=59)
        await inside.fabric.step()
        assert (await inside.follow(status)).status_code == 200
        clock.advance(minutes=2)
        await inside.fabric.step()
        assert (await inside.follow(status)).status_code == 404
