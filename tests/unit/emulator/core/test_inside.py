"""The emulator on a moved clock, with VMs that run nothing."""

from pathlib import Path

from tests.clock import Clock
from tests.emulated.inside import HERE, Inside, emulator_inside
from tests.emulated.process import GROUP, scale_set

SET = f"{HERE}/resourceGroups/{GROUP}/providers/Microsoft.Compute/virtualMachineScaleSets/rk-1"


async def states(inside: Inside) -> list[str]:
    vms = (
        await inside.arm.get(f"{SET}/virtualMachines", params={"$expand": "instanceView"})
    ).json()
    return [vm["properties"]["provisioningState"] for vm in vms["value"]]


async def test_a_scale_set_comes_and_goes_as_time_passes(tmp_path: Path) -> None:
    async with emulator_inside(tmp_path, Clock(), create_seconds=60, delete_seconds=30) as inside:
        await inside.make_group()
        (await inside.arm.put(SET, json=scale_set(2))).raise_for_status()
        await inside.pass_time(59)
        assert await states(inside) == ["Creating", "Creating"]
        await inside.pass_time(1)
        assert await states(inside) == ["Succeeded", "Succeeded"]
        await inside.arm.delete(SET)
        await inside.pass_time(29)
        assert (await inside.arm.get(SET)).status_code == 200
        await inside.pass_time(1)
        assert (await inside.arm.get(SET)).status_code == 404


async def test_what_was_is_there_after_a_restart(tmp_path: Path) -> None:
    clock = Clock()
    async with emulator_inside(tmp_path, clock) as inside:
        await inside.make_group()
        (await inside.arm.put(SET, json=scale_set(2))).raise_for_status()
    async with emulator_inside(tmp_path, clock) as inside:
        await inside.pass_time(3)
        assert await states(inside) == ["Succeeded", "Succeeded"]
