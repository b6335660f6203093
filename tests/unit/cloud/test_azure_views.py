"""What Azure says of scale sets, clusters and their machines, read into our values."""

from types import SimpleNamespace
from typing import Any

import pytest
from azure.mgmt.compute.models import (
    VirtualMachineScaleSet,
    VirtualMachineScaleSetInstanceView,
    VirtualMachineScaleSetVM,
)

from service.cloud.azure.views import failure, scale_set
from service.cloud.azureml.views import cluster, cluster_name, spot_cores
from service.cloud.provider import ATTEMPT_TAG
from service.domain.cloud.fleet import (
    ScaleSet,
    ScaleSetFailure,
    ScaleSetPhase,
    SpotCores,
    scale_set_name,
)
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
    first, second = _machine("0", power="running"), _machine("1", power="running")

    assert scale_set(_set("Creating", capacity=2), [first]).phase is ScaleSetPhase.CREATING
    assert scale_set(_set("Creating", capacity=2), [first, second]).phase is ScaleSetPhase.READY
    assert scale_set(_set("Updating", capacity=1), [first]).phase is ScaleSetPhase.READY


@pytest.mark.parametrize(
    ("power", "state", "running"),
    [
        *((power, "Succeeded", False) for power in ("starting", "stopping", "deallocated")),
        *((power, "Succeeded", True) for power in ("", "unknown", "running")),
        *((power, "Creating", False) for power in ("", "unknown")),
    ],
)
def test_a_machine_runs_by_its_power_or_else_once_it_was_provisioned(
    power: str, state: str, *, running: bool
) -> None:
    assert _running(_machine("0", state=state, power=power)) is running


@pytest.mark.parametrize(
    ("properties", "bought"),
    [
        ({"virtualMachineProfile": {"priority": "Spot"}}, CapacityType.SPOT),
        ({"virtualMachineProfile": {"priority": "Regular"}}, CapacityType.ON_DEMAND),
        ({"virtualMachineProfile": {"priority": "Low"}}, None),
        ({"virtualMachineProfile": {}}, None),
        ({}, None),
    ],
)
def test_how_a_set_was_bought_is_known_where_azure_tells_it(
    properties: dict[str, Any], bought: CapacityType | None
) -> None:
    azure_set = VirtualMachineScaleSet({"name": "rk-1", "properties": properties})

    assert scale_set(azure_set, ()).capacity_type is bought


def test_the_cause_may_be_found_at_a_machine() -> None:
    assert _failure(view=[], machine=[SUCCEEDED, FAILED]).error_code == "AllocationFailed"


def test_a_failure_without_a_cause_is_still_a_failure() -> None:
    failed = _failure(view=[{"code": "ProvisioningState/failed"}])

    assert failed.phase is ScaleSetPhase.FAILED
    assert (failed.error_code, failed.failure) == (
        "ProvisioningFailed",
        ScaleSetFailure.TRANSIENT,
    )


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
    view_of_set = scale_set(_set("Failed"), machines)
    return failure(view_of_set, VirtualMachineScaleSetInstanceView({"statuses": view}), machines)


ATTEMPT = "att-01jd8m4x9g5v0c3k2n7p6q8r1s"
NAME = scale_set_name(ATTEMPT)


def aml_compute(**members: Any) -> SimpleNamespace:  # noqa: ANN401 - an AmlCompute's
    usual: dict[str, Any] = {"name": cluster_name(NAME), "tags": {ATTEMPT_TAG: ATTEMPT}}
    usual |= {"location": "East US", "size": "Standard_ND96asr_v4", "tier": "low_priority"}
    usual |= {"provisioning_state": "Succeeded", "provisioning_errors": None, "created_on": None}
    return SimpleNamespace(**(usual | members))


def node(number: int, state: str) -> SimpleNamespace:
    return SimpleNamespace(nodeId=f"tvmps_{number}", node_id=None, nodeState=state)


def error(code: str, message: str = "no") -> SimpleNamespace:
    return SimpleNamespace(error=SimpleNamespace(code=code, message=message))


@pytest.mark.parametrize(
    ("members", "status", "phase"),
    [
        ({"provisioning_state": "Creating"}, None, ScaleSetPhase.INCOMPLETE),
        ({}, None, ScaleSetPhase.INCOMPLETE),
        ({}, "Queued", ScaleSetPhase.CREATING),
        ({}, "Preparing", ScaleSetPhase.CREATING),
        ({}, "Running", ScaleSetPhase.READY),
        ({}, "NotResponding", ScaleSetPhase.READY),  # it may come back
        ({}, "Failed", ScaleSetPhase.FAILED),
        ({}, "Canceled", ScaleSetPhase.FAILED),
        ({"provisioning_state": "Deleting"}, "Running", ScaleSetPhase.DELETING),
        ({"provisioning_state": "Failed"}, None, ScaleSetPhase.FAILED),
    ],
)
def test_how_far_it_is(members: dict[str, Any], status: str | None, phase: ScaleSetPhase) -> None:
    assert cluster(aml_compute(**members), status).phase is phase


@pytest.mark.parametrize(
    ("status", "states", "running"),
    [
        ("Running", ("running", "running"), 2),
        ("Running", ("running", "preempted"), 1),  # the job's status has not changed yet
        ("Queued", ("idle", "preempted"), 0),  # it was preempted, and waits for a node
        ("Starting", ("running", "running"), 0),  # it begins again: its processes are new ones
        ("Failed", ("idle", "idle"), 0),  # by PreemptionError
        ("Canceled", (), 0),  # the whole cluster was taken
    ],
)
def test_an_evicted_job_has_fewer_nodes_that_run(
    status: str, states: tuple[str, ...], running: int
) -> None:
    view = cluster(aml_compute(), status, [node(i, state) for i, state in enumerate(states)])
    assert sum(i.running for i in view.instances) == running


def test_a_node_that_is_on_costs_money_though_nothing_runs_on_it() -> None:
    states = ("idle", "preparing", "leaving", "preempted", "unusable")
    view = cluster(aml_compute(), "Queued", [node(i, state) for i, state in enumerate(states)])
    assert [i.vm_id for i in view.instances] == ["tvmps_0", "tvmps_1"]


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        ("ClusterCoreQuotaReached", ScaleSetFailure.NO_CAPACITY),
        ("AllocationFailed", ScaleSetFailure.NO_CAPACITY),
        ("SubnetIsFull", ScaleSetFailure.MISCONFIGURED),
        ("InternalServerError", ScaleSetFailure.TRANSIENT),
    ],
)
def test_why_its_nodes_do_not_come_means_what_it_means_of_a_scale_set(
    code: str, failure: ScaleSetFailure
) -> None:
    view = cluster(aml_compute(), "Queued", errors=[error(code)])
    assert (view.phase, view.failure, view.error_code) == (ScaleSetPhase.FAILED, failure, code)


@pytest.mark.parametrize(
    ("reason", "failure", "expected"),
    [
        ("Failed to pull Docker image. unauthorized: sign in", ScaleSetFailure.MISCONFIGURED,
         "AcrPull"),
        ("Failed to pull Docker image. manifest unknown", ScaleSetFailure.MISCONFIGURED,
         "no such image"),
        ("Failed to pull Docker image. i/o timeout", ScaleSetFailure.TRANSIENT,
         "cannot be reached"),
        ("PreemptionError: Nodes of this job got pre-empted", ScaleSetFailure.TRANSIENT,
         "pre-empted"),
        ("User process exited with status code 3.", ScaleSetFailure.TRANSIENT, "status code 3"),
    ],
)  # fmt: skip
def test_why_its_job_failed_is_told_with_what_to_do(
    reason: str, failure: ScaleSetFailure, expected: str
) -> None:
    view = cluster(aml_compute(), "Failed", reason=reason)
    assert (view.phase, view.failure) == (ScaleSetPhase.FAILED, failure)
    assert expected in view.error_message


def test_the_cores_of_clusters_are_in_a_row_of_their_own() -> None:
    rows = [
        SimpleNamespace(name={"value": f"Cluster {name} vCPUs"}, limit=limit, currentValue=24)
        for name, limit in (("Dedicated Regional", 1), ("LowPriority", 96))
    ]
    assert spot_cores(rows) == SpotCores(limit=96, used=24)


def test_an_error_of_before_counts_for_nothing_once_nodes_have_come() -> None:
    view = cluster(aml_compute(), "Running", [node(0, "running")], [error("AllocationFailed")])
    assert (view.phase, view.error_code) == (ScaleSetPhase.READY, "")
