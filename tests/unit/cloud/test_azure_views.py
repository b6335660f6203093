"""What Azure says about scale sets and their machines, read into our values."""

from typing import Any

import pytest
from azure.mgmt.compute.models import (
    VirtualMachineScaleSet,
    VirtualMachineScaleSetInstanceView,
    VirtualMachineScaleSetVM,
)

from service.cloud.azure.views import failure, scale_set
from service.domain.cloud.fleet import ScaleSet, ScaleSetFailure, ScaleSetPhase
from service.domain.states import CapacityType

FAILED = {
    "code": "ProvisioningState/failed/AllocationFailed",
    "level": "Error",
    "displayStatus": "Provisioning failed",
    "message": "We do not have sufficient capacity.",
}
SUCCEEDED = {"code": "ProvisioningState/succeeded", "displayStatus": "Provisioning succeeded"}


@pytest.mark.parametrize(
    ("state", "phase"),
    [
        ("Creating", ScaleSetPhase.CREATING),
        ("Updating", ScaleSetPhase.CREATING),
        ("Succeeded", ScaleSetPhase.READY),
        ("Failed", ScaleSetPhase.FAILED),
        ("Canceled", ScaleSetPhase.FAILED),
        ("Deleting", ScaleSetPhase.DELETING),
        ("BrandNewState", ScaleSetPhase.CREATING),
    ],
)
def test_every_provisioning_state_is_a_phase(state: str, phase: ScaleSetPhase) -> None:
    assert scale_set(_set(state), []).phase is phase


def test_a_set_is_ready_once_all_its_machines_run() -> None:
    one, two = _machine("0", power="running"), _machine("1", power="running")

    assert scale_set(_set("Creating", capacity=2), [one]).phase is ScaleSetPhase.CREATING
    assert scale_set(_set("Creating", capacity=2), [one, two]).phase is ScaleSetPhase.READY


def test_an_update_that_azure_makes_by_itself_does_not_take_a_complete_set_back() -> None:
    machine = _machine("0", power="running")

    assert scale_set(_set("Updating", capacity=1), [machine]).phase is ScaleSetPhase.READY


@pytest.mark.parametrize("power", ["stopping", "stopped", "deallocating", "deallocated"])
def test_a_machine_that_lingers_stopped_does_not_run(power: str) -> None:
    assert _running(_machine("0", power=power)) is False


@pytest.mark.parametrize("power", ["", "unknown"])
def test_a_machine_of_unknown_power_runs_once_it_was_provisioned(power: str) -> None:
    assert _running(_machine("0", power=power)) is True
    assert _running(_machine("0", state="Creating", power=power)) is False


@pytest.mark.parametrize(
    ("told", "bought"),
    [
        ({"virtualMachineProfile": {"priority": "Spot"}}, CapacityType.SPOT),
        ({"virtualMachineProfile": {"priority": "Regular"}}, CapacityType.ON_DEMAND),
        ({"virtualMachineProfile": {"priority": "Low"}}, None),
        ({"virtualMachineProfile": {}}, None),
        ({}, None),
    ],
)
def test_how_a_set_was_bought_is_known_where_azure_tells_it(
    told: dict[str, Any], bought: CapacityType | None
) -> None:
    found = VirtualMachineScaleSet({"name": "rk-1", "properties": told})

    assert scale_set(found, ()).capacity_type is bought


def test_a_machine_that_starts_does_not_run_yet() -> None:
    assert _running(_machine("0", power="starting")) is False


def test_the_cause_may_be_found_at_a_machine() -> None:
    assert _failure(view=[], machine=[SUCCEEDED, FAILED]).error_code == "AllocationFailed"


def test_a_failure_without_a_cause_is_still_a_failure() -> None:
    seen = _failure(view=[{"code": "ProvisioningState/failed"}])

    assert seen.phase is ScaleSetPhase.FAILED
    assert (seen.error_code, seen.failure) == ("ProvisioningFailed", ScaleSetFailure.TRANSIENT)


def _set(state: str, capacity: int = 1) -> VirtualMachineScaleSet:
    return VirtualMachineScaleSet(
        {
            "name": "rk-1",
            "location": "eastus",
            "sku": {"capacity": capacity},
            "properties": {"provisioningState": state},
        }
    )


def _machine(number: str, *, state: str = "Succeeded", power: str = "") -> VirtualMachineScaleSetVM:
    statuses = [SUCCEEDED, *([{"code": f"PowerState/{power}"}] if power else [])]
    return _machine_with(number, state, statuses)


def _machine_with(
    number: str, state: str, statuses: list[dict[str, Any]]
) -> VirtualMachineScaleSetVM:
    return VirtualMachineScaleSetVM(
        {
            "instanceId": number,
            "name": f"rk-1_{number}",
            "properties": {
                "vmId": f"vm-{number}",
                "provisioningState": state,
                "instanceView": {"statuses": statuses},
            },
        }
    )


def _running(machine: VirtualMachineScaleSetVM) -> bool:
    (instance,) = scale_set(_set("Succeeded"), [machine]).instances
    return instance.running


def _failure(view: list[dict[str, Any]], machine: list[dict[str, Any]] | None = None) -> ScaleSet:
    machines = [_machine_with("0", "Failed", machine)] if machine else []
    seen = scale_set(_set("Failed"), machines)
    return failure(seen, VirtualMachineScaleSetInstanceView({"statuses": view}), machines)
