"""Translate an Azure Machine Learning workspace's answers into our values. Pure.

Preemption is no status there. Azure takes a node and ends the job's processes on all of them
without notice; the job goes back from Running to Queued under its name, or fails. In each case
fewer nodes run than before, which is an eviction to the rest of the service.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from contract.choices import Engine
from service.cloud.azure.errors import classify_failure
from service.cloud.provider import ATTEMPT_TAG
from service.domain.cloud.fleet import (
    Instance,
    ScaleSet,
    ScaleSetFailure,
    ScaleSetPhase,
    ScaleSetSpec,
    SpotCores,
    scale_set_name,
)
from service.domain.lifecycle import boot_report
from service.domain.lifecycle.boot_report import LONGEST_TEXT
from service.domain.states import CapacityType

LOW_PRIORITY = "low_priority"  # the tier; it allocates Spot since 2026-03-31
_MAX_NAME_LENGTH = 24  # characters of a cluster's name; Microsoft's page on its quotas
# The SDK takes NotResponding for an end; the job may come back from it.
_RUNS = frozenset({"Running", "NotResponding", "Finalizing"})
_PULL = re.compile(r"\bpull\b.*\bimage\b", re.IGNORECASE)
TERMINAL_STATUSES = frozenset({"Completed", "Failed", "Canceled"})


def cluster_name(name: str) -> str:
    """Return the name of a scale set's cluster: shorter, and as unique; a cluster keeps its name.

    >>> cluster_name("rk-01jd8m4x9g5v0c3k2n7p6q8r1s")
    'rk-m4x9g5v0c3k2n7p6q8r1s'
    """
    return name if len(name) <= _MAX_NAME_LENGTH else name[:3] + name[3 - _MAX_NAME_LENGTH :]


def cluster(
    compute: Any,  # noqa: ANN401 - AmlCompute
    status: str | None = None,
    nodes: Iterable[object] = (),
    errors: Sequence[Any] = (),
    reason: str = "",
) -> ScaleSet:
    """Return the cluster as a scale set; ``status``: of its job, None where there is none.

    ``errors``: why nodes did not come; ``reason``: what the job says of its failure.
    """
    tags = dict(compute.tags or {})
    own_name = scale_set_name(tags.get(ATTEMPT_TAG, ""))
    name = own_name if cluster_name(own_name) == compute.name else compute.name
    scale_set = _scale_set(compute, name, status, nodes, errors, reason)
    return replace(scale_set, tags=tags, created_at=_moment(compute.created_on))


def job_on_cluster(
    name: str,
    job: Any,  # noqa: ANN401 - JobBase
    compute: Any,  # noqa: ANN401 - AmlCompute
    nodes: Iterable[object] = (),
    errors: Sequence[Any] = (),
    reason: str = "",
) -> ScaleSet:
    """Return a job on a cluster that others use too as a scale set; ``nodes``: those that run it.

    It has no ``created_at``: while the job waits for others no machine is its own.
    """
    status = status_of(job)
    scale_set = _scale_set(compute, name, status, nodes, errors, reason)
    phase = ScaleSetPhase.DELETING if status == "CancelRequested" else scale_set.phase
    return replace(scale_set, tags=dict(job.properties.tags or {}), phase=phase)


def _scale_set(
    compute: Any,  # noqa: ANN401 - AmlCompute
    name: str,
    status: str | None,
    nodes: Iterable[object],
    errors: Sequence[Any],
    reason: str,
) -> ScaleSet:
    runs = status in _RUNS
    machines = tuple(_machine(node, runs=runs) for node in map(_members, nodes) if _is_on(node))
    error = _failure(compute, name, status, [] if machines else errors, reason)
    return ScaleSet(
        name=name,
        phase=_phase(compute, status, failed=error is not None),
        instances=machines,
        error_code=error[0] if error else "",
        error_message=error[2] if error else "",
        failure=error[1] if error else ScaleSetFailure.TRANSIENT,
        region=(compute.location or "").lower().replace(" ", ""),
        vm_size=compute.size or "",
        capacity_type=CapacityType.SPOT if compute.tier == LOW_PRIORITY else CapacityType.ON_DEMAND,
        engine=Engine.AZUREML,
    )


def _failure(
    compute: Any,  # noqa: ANN401 - AmlCompute
    name: str,
    status: str | None,
    errors: Sequence[Any],
    reason: str,
) -> tuple[str, ScaleSetFailure, str] | None:
    """Return the code of a failure, its meaning and the remedy; None where nothing failed."""
    if errors:
        error = errors[0].error
        return (error.code, *classify_failure(error.code, error.message))
    if code := compute.provisioning_errors:
        return (code, *classify_failure(code, f"Azure ML could not make the cluster: {code}"))
    if _PULL.search(reason):
        report = boot_report.BootReport(
            phase=boot_report.BootPhase.PULL_IMAGE,
            status=boot_report.BootStatus.GAVE_UP,
            machine="Azure ML",
            text=reason,
        )
        causes = boot_report.failure_causes(report)
        permanent = all(cause.non_retryable_after for cause in causes)
        kind = ScaleSetFailure.MISCONFIGURED if permanent else ScaleSetFailure.TRANSIENT
        return str(status), kind, boot_report.failure_sentence(report)
    if status in TERMINAL_STATUSES:
        hint = f"Azure ML studio shows its logs under the job {name}"
        detail = f" ({reason[:LONGEST_TEXT]})" if reason else ""
        text = f"The Azure ML job ended as {status}{detail}; {hint}."
        return str(status), ScaleSetFailure.TRANSIENT, text
    return None


def misfit(
    compute: Any | None,  # noqa: ANN401 - AmlCompute
    name: str,
    spec: ScaleSetSpec,
) -> tuple[ScaleSetFailure, str] | None:
    """Return why the named cluster cannot run the job, and what to do; None if it can."""
    if compute is None:
        return ScaleSetFailure.MISCONFIGURED, (
            f"The workspace has no cluster {name}. Create it, or correct REKINDLE_OFFERINGS."
        )
    offering, current = spec.offering, cluster(compute)
    expected = (offering.vm_size.lower(), offering.region, offering.capacity_type)
    if (current.vm_size.lower(), current.region, current.capacity_type) != expected:
        capacity_type = str(current.capacity_type).replace("_", "-")
        return ScaleSetFailure.MISCONFIGURED, (
            f"Cluster {name} has {current.vm_size} in {current.region} ({capacity_type}), and"
            f" REKINDLE_OFFERINGS says {offering}. Correct one of them."
        )
    if compute.max_instances < spec.instance_count:
        return ScaleSetFailure.NO_CAPACITY, (
            f"Cluster {name} has {compute.max_instances} nodes at most, and the job needs"
            f" {spec.instance_count}. Raise its maximum: az ml compute update -n {name}"
            f" --max-instances {spec.instance_count}"
        )
    return None


def status_of(job: Any) -> str:  # noqa: ANN401 - JobBase
    """Return the status of a job as the workspace has it."""
    return str(getattr(job.properties.status, "value", job.properties.status))


def nodes_of(nodes: Iterable[object], name: str) -> list[object]:
    """Return the nodes that run this job."""
    return [n for n in nodes if _is_on(row := _members(n)) and row.get("runid") == name]


def runs_on(nodes: Iterable[object]) -> list[str]:
    """Return the jobs that have nodes."""
    return sorted({row["runid"] for row in map(_members, nodes) if _is_on(row) and "runid" in row})


def idle_nodes(nodes: Iterable[object]) -> int:
    """Return how many nodes no job has."""
    return sum(row["nodestate"] == "idle" for row in map(_members, nodes))


def spot_cores(usages: Iterable[Any]) -> SpotCores:
    """Return the quota of low-priority cores of clusters, which virtual machines do not share."""
    for usage in map(_members, usages):
        if "lowpriority" in usage["name"]["value"].lower().replace(" ", ""):
            return SpotCores(limit=usage["limit"], used=usage["currentvalue"])
    return SpotCores(limit=None, used=0)


def _members(row: object) -> dict[str, Any]:
    """Return a row's members by lower-case names without underscores.

    azure-ai-ml 1.35 names the members of nodes and usages as JSON does (nodeId), and leaves those
    that it documents (node_id) empty.
    """
    return {
        name.replace("_", "").lower(): value
        for name, value in vars(row).items()
        if value is not None
    }


def _is_on(node: dict[str, Any]) -> bool:
    return node["nodestate"] not in ("preempted", "leaving", "unusable")


def _machine(node: dict[str, Any], *, runs: bool) -> Instance:
    name = str(node["nodeid"])
    running = runs and node["nodestate"] == "running"
    return Instance(instance_id=name, vm_id=name, name=name, running=running)


def _phase(compute: Any, status: str | None, *, failed: bool) -> ScaleSetPhase:  # noqa: ANN401 - AmlCompute
    state = (compute.provisioning_state or "").lower()
    if state == "deleting":
        return ScaleSetPhase.DELETING
    if failed or state in ("failed", "canceled"):
        return ScaleSetPhase.FAILED
    if status is None:
        return ScaleSetPhase.INCOMPLETE
    return ScaleSetPhase.READY if status in _RUNS else ScaleSetPhase.CREATING


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
