"""Scale sets on localhost, by the real SDK client over TLS."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.mgmt.compute.aio import ComputeManagementClient
from azure.mgmt.compute.models import VirtualMachineScaleSetVMInstanceIDs

from tests.emulated.process import (
    BOOT,
    GROUP,
    Emulator,
    begin,
    child,
    compute,
    create,
    remove,
    runs,
    scale_set,
    wait_for,
)
from tests.waiting import until

EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
SHORT = ("--create-seconds", "0.3", "--delete-seconds", "0.2", "--notice-seconds", "1.5")


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    """One emulator for the tests that need no restart; quota for ten VMs."""
    running = Emulator(tmp_path_factory.mktemp("azure"), *SHORT, "--page-size", "2")
    running.make_group()
    yield running
    running.destroy()


async def ids(client: ComputeManagementClient, name: str) -> list[str]:
    vms = client.virtual_machine_scale_set_vms.list(GROUP, name)
    return [str(vm.instance_id) async for vm in vms]


async def power(client: ComputeManagementClient, name: str, instance: str) -> list[str]:
    view = await client.virtual_machine_scale_set_vms.get_instance_view(GROUP, name, instance)
    return [str(status.code) for status in view.statuses or ()]


def events(vm: dict[str, Any]) -> dict[str, Any]:
    response = httpx.get(f"{vm['metadata_url']}{EVENTS}", headers={"Metadata": "true"})
    return dict(response.raise_for_status().json())


def agree(vm: dict[str, Any], event_id: str) -> None:
    url, body = f"{vm['metadata_url']}{EVENTS}", {"StartRequests": [{"EventId": event_id}]}
    httpx.post(url, headers={"Metadata": "true"}, json=body).raise_for_status()


async def test_a_scale_set_boots_is_evicted_and_is_deleted(emulator: Emulator) -> None:
    async with compute(emulator) as client:
        await create(client, "rk-life", scale_set(2, BOOT))
        first, second = emulator.machines("rk-life")
        pids = [child(first), child(second)]
        vms = client.virtual_machine_scale_set_vms.list(GROUP, "rk-life", expand="instanceView")
        views = [vm.instance_view async for vm in vms]

        assert (Path(first["folder"]) / "copied.json").read_text() == '{"attempt": 1}'
        assert [[s.code for s in v.statuses or ()][-1] for v in views if v] == [
            "PowerState/running"
        ] * 2
        assert first["address"] != second["address"]

        await client.virtual_machine_scale_set_vms.simulate_eviction(GROUP, "rk-life", "0")
        event = events(first)["Events"][0]
        assert (event["EventType"], event["Resources"]) == ("Preempt", ["rk-life_0"])
        assert events(second)["Events"] == []

        agree(first, event["EventId"])

        async def one_left() -> bool:
            return await ids(client, "rk-life") == ["1"]

        await until(one_left, bool, interval=0.05)
        remaining = await client.virtual_machine_scale_sets.get(GROUP, "rk-life")
        assert remaining.sku
        assert remaining.sku.capacity == 1
        assert [runs(pid) for pid in pids] == [False, True]

        deletion = await client.virtual_machine_scale_sets.begin_delete(GROUP, "rk-life")
        await deletion.result()
        with pytest.raises(ResourceNotFoundError) as error:
            await client.virtual_machine_scale_sets.get(GROUP, "rk-life")
        assert error.value.error
        assert error.value.error.code == "ResourceNotFound"
        assert not runs(pids[1])
        assert not runs(second["pid"])


async def test_a_vm_whose_init_dies_is_stopped_but_stays(emulator: Emulator) -> None:
    async with compute(emulator) as client:
        await create(client, "rk-crash", scale_set(1, BOOT))
        (vm,) = emulator.machines("rk-crash")
        orphan = child(vm)
        os.kill(vm["pid"], signal.SIGKILL)

        async def stopped() -> bool:
            return (await power(client, "rk-crash", "0"))[-1] == "PowerState/stopped"

        await until(stopped, bool, interval=0.05)
        assert await ids(client, "rk-crash") == ["0"]
        await remove(client, "rk-crash")
        assert not runs(orphan)


async def test_beyond_the_quota_a_scale_set_is_refused_at_once(emulator: Emulator) -> None:
    async with compute(emulator) as client:
        await create(client, "rk-some", scale_set(2))
        usages = {u.name.value: u async for u in client.usage.list("eastus")}
        assert usages["lowPriorityCores"].current_value == 192

        with pytest.raises(ResourceExistsError) as error:
            await create(client, "rk-many", scale_set(9))
        assert error.value.error
        assert error.value.error.code == "OperationNotAllowed"
        assert "exceeding approved LowPriorityCores quota" in str(error.value.error.message)
        assert "(Minimum) New Limit Required: 1056" in str(error.value.error.message)
        await remove(client, "rk-some")


async def test_a_delete_overtakes_a_create(emulator: Emulator) -> None:
    async with compute(emulator) as client:
        sets = client.virtual_machine_scale_sets
        creation = await begin(client, "rk-race", scale_set(2, BOOT))
        await sets.begin_delete(GROUP, "rk-race", polling=False)
        with pytest.raises(ResourceExistsError, match="marked for deletion"):
            await create(client, "rk-race", scale_set(2))
        with pytest.raises(HttpResponseError) as overtaken:
            await creation.result()
        await remove(client, "rk-race")

    assert overtaken.value.error
    assert overtaken.value.error.code == "OperationPreempted"
    assert emulator.machines("rk-race") == []


DURABLE: dict[str, Any] = {"evictionPolicy": "Deallocate", "storageProfile": {"osDisk": {}}}


async def powers(client: ComputeManagementClient, name: str) -> list[str]:
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
        assert await powers(client, "rk-power") == ["stopped"]
        assert not runs(first)
        (folder / "child.pid").unlink()

        ids = VirtualMachineScaleSetVMInstanceIDs(instance_ids=["0"])
        await (await sets.begin_start(GROUP, "rk-power", ids)).result()
        assert await powers(client, "rk-power") == ["running"]
        assert (folder / "kept").exists()

        await (await sets.begin_deallocate(GROUP, "rk-power")).result()
        assert await powers(client, "rk-power") == ["deallocated"]

        await (await sets.begin_start(GROUP, "rk-power")).result()
        assert await powers(client, "rk-power") == ["running"]
        await client.virtual_machine_scale_set_vms.simulate_eviction(GROUP, "rk-power", "0")
        wait_for(lambda: emulator.machines("rk-power")[0]["state"] == "deallocated")
        await (await sets.begin_start(GROUP, "rk-power")).result()
        assert await powers(client, "rk-power") == ["running"]
        assert (folder / "kept").exists()  # the disk outlived the eviction
        await remove(client, "rk-power")
