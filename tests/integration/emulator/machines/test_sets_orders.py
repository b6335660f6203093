"""Orders to VMs that run, by the real SDK client over TLS."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.mgmt.compute.aio import ComputeManagementClient
from azure.mgmt.compute.models import VirtualMachineScaleSetVMInstanceIDs

from tests.emulated.process import (
    BOOT,
    GROUP,
    Emulator,
    child,
    compute,
    create,
    remove,
    runs,
    scale_set,
    wait_for,
)

SHORT = ("--create-seconds", "0.2", "--delete-seconds", "0.1", "--notice-seconds", "1")
DURABLE: dict[str, Any] = {"evictionPolicy": "Deallocate", "storageProfile": {"osDisk": {}}}


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    """One emulator for all; quota for ten VMs."""
    running = Emulator(tmp_path_factory.mktemp("azure"), *SHORT, "--page-size", "2")
    running.make_group()
    yield running
    running.destroy()


async def power(client: ComputeManagementClient, name: str) -> list[str]:
    vms = client.virtual_machine_scale_set_vms
    views = [vm.instance_view async for vm in vms.list(GROUP, name, expand="instanceView")]
    return [str((v.statuses or [])[-1].code).removeprefix("PowerState/") for v in views if v]


async def test_a_vm_is_stopped_and_started(emulator: Emulator) -> None:
    async with compute(emulator) as client:
        await create(client, "rk-power", scale_set(1, BOOT, **DURABLE))
        sets = client.virtual_machine_scale_sets
        (vm,) = emulator.machines("rk-power")
        folder, first = Path(vm["folder"]), child(vm)
        (folder / "kept").touch()

        await (await sets.begin_power_off(GROUP, "rk-power")).result()
        assert await power(client, "rk-power") == ["stopped"]
        assert not runs(first)
        (folder / "child.pid").unlink()

        ids = VirtualMachineScaleSetVMInstanceIDs(instance_ids=["0"])
        await (await sets.begin_start(GROUP, "rk-power", ids)).result()
        assert await power(client, "rk-power") == ["running"]
        assert (folder / "kept").exists()

        await (await sets.begin_deallocate(GROUP, "rk-power")).result()
        assert await power(client, "rk-power") == ["deallocated"]

        await (await sets.begin_start(GROUP, "rk-power")).result()
        assert await power(client, "rk-power") == ["running"]
        await client.virtual_machine_scale_set_vms.simulate_eviction(GROUP, "rk-power", "0")
        wait_for(lambda: emulator.machines("rk-power")[0]["state"] == "deallocated")
        await (await sets.begin_start(GROUP, "rk-power")).result()
        assert await power(client, "rk-power") == ["running"]
        assert (folder / "kept").exists()  # the disk outlived the eviction
        await remove(client, "rk-power")
