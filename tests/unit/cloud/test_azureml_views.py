"""What a workspace says of a cluster and its job, read as a scale set."""

from types import SimpleNamespace
from typing import Any

import pytest

from service.cloud.azureml.views import cluster, cluster_name, spot_cores
from service.cloud.provider import ATTEMPT_TAG
from service.domain.cloud.fleet import ScaleSetFailure, ScaleSetPhase, SpotCores, scale_set_name

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


def test_its_name_is_that_of_its_attempts_scale_set() -> None:
    seen = cluster(aml_compute())
    assert (seen.name, seen.region) == (NAME, "eastus")
    assert len(cluster_name(NAME)) == 24


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
    seen = cluster(aml_compute(), status, [node(i, state) for i, state in enumerate(states)])
    assert sum(i.running for i in seen.instances) == running


def test_a_node_that_is_on_costs_money_though_nothing_runs_on_it() -> None:
    states = ("idle", "preparing", "leaving", "preempted", "unusable")
    seen = cluster(aml_compute(), "Queued", [node(i, state) for i, state in enumerate(states)])
    assert [i.vm_id for i in seen.instances] == ["tvmps_0", "tvmps_1"]


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
    seen = cluster(aml_compute(), "Queued", errors=[error(code)])
    assert (seen.phase, seen.failure, seen.error_code) == (ScaleSetPhase.FAILED, failure, code)


@pytest.mark.parametrize(
    ("why", "failure", "said"),
    [
        (
            "Failed to pull Docker image. unauthorized: sign in",
            ScaleSetFailure.MISCONFIGURED,
            "AcrPull",
        ),
        (
            "Failed to pull Docker image. manifest unknown",
            ScaleSetFailure.MISCONFIGURED,
            "no such image",
        ),
        (
            "Failed to pull Docker image. i/o timeout",
            ScaleSetFailure.TRANSIENT,
            "cannot be reached",
        ),
        (
            "PreemptionError: Nodes of this job got pre-empted",
            ScaleSetFailure.TRANSIENT,
            "pre-empted",
        ),
        ("User process exited with status code 3.", ScaleSetFailure.TRANSIENT, "status code 3"),
    ],
)
def test_why_its_job_failed_is_told_with_what_to_do(
    why: str, failure: ScaleSetFailure, said: str
) -> None:
    seen = cluster(aml_compute(), "Failed", reason=why)
    assert (seen.phase, seen.failure) == (ScaleSetPhase.FAILED, failure)
    assert said in seen.error_message


def test_an_error_of_before_counts_for_nothing_once_nodes_have_come() -> None:
    seen = cluster(aml_compute(), "Running", [node(0, "running")], [error("AllocationFailed")])
    assert (seen.phase, seen.error_code) == (ScaleSetPhase.READY, "")


def test_the_cores_of_clusters_are_told_by_their_own_name() -> None:
    rows = [
        SimpleNamespace(
            name={"value": "Cluster Dedicated Regional vCPUs"}, limit=1, currentValue=1
        ),
        SimpleNamespace(name={"value": "Cluster LowPriority vCPUs"}, limit=96, currentValue=24),
    ]
    assert spot_cores(rows) == SpotCores(limit=96, used=24)
