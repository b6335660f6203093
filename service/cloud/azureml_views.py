"""What an Azure Machine Learning workspace says, read into our values. Pure.

Preemption is no status there. Azure takes a node, ends the job's processes on all of them without
notice, and the job goes back from Running to Queued under its name, or fails. In each case fewer
nodes run than before, which is what an eviction is to the rest of the service.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from contract.choices import Engine
from service.cloud.azure_errors import failed
from service.cloud.provider import ATTEMPT_TAG
from service.domain.fleet import (
    Failure,
    Instance,
    ScaleSet,
    ScaleSetPhase,
    SpotCores,
    scale_set_name,
)
from service.domain.states import CapacityType

LOW_PRIORITY = "low_priority"  # the tier; it allocates Spot since 2026-03-31
_MOST = 24  # characters of a cluster's name; Microsoft's page on its quotas
_DELETING, _MADE = "deleting", "succeeded"
# The SDK takes NotResponding for an end; the job may come back from it.
_RUNS = frozenset({"Running", "NotResponding", "Finalizing"})
_OVER = frozenset({"Completed", "Failed", "Canceled"})


def cluster_name(name: str) -> str:
    """The cluster of a scale set's name: shorter, and as unique; a cluster's own name is itself.

    >>> cluster_name("rk-01jd8m4x9g5v0c3k2n7p6q8r1s")
    'rk-m4x9g5v0c3k2n7p6q8r1s'
    """
    return name if len(name) <= _MOST else name[:3] + name[3 - _MOST :]


def cluster(found: Any, status: str | None = None, nodes: Iterable[Any] = ()) -> ScaleSet:  # noqa: ANN401 - AmlCompute
    """The cluster as a scale set; ``status``: of its job, None where there is none.

    The message of a failure that the cluster reports is not in the client's answer: its code is.
    """
    tags = dict(found.tags or {})
    ours = scale_set_name(tags.get(ATTEMPT_TAG, ""))
    runs = status in _RUNS
    # idle, running, preparing, unusable, leaving or preempted
    states = {_member(n, "node_id"): _member(n, "node_state") for n in nodes}
    machines = tuple(
        Instance(instance_id=node, vm_id=node, name=node, running=runs)
        for node, state in states.items()
        if state == "running" or (not runs and state in ("idle", "preparing"))
    )
    error = failure(found, status, machines)
    return ScaleSet(
        name=ours if cluster_name(ours) == found.name else found.name,
        phase=_phase(found, status, failed=error is not None),
        instances=machines,
        tags=tags,
        error_code=error[0] if error else "",
        error_message=error[2] if error else "",
        failure=error[1] if error else Failure.TRANSIENT,
        created_at=_moment(found.created_on),
        region=(found.location or "").lower().replace(" ", ""),
        vm_size=found.size or "",
        capacity_type=CapacityType.SPOT if found.tier == LOW_PRIORITY else CapacityType.ON_DEMAND,
        engine=Engine.AZUREML,
    )


def failure(
    found: Any,  # noqa: ANN401 - AmlCompute
    status: str | None,
    machines: Sequence[Instance],
) -> tuple[str, Failure, str] | None:
    """The code of a failure, what it means and what to do; None where nothing failed."""
    if code := "" if machines else found.provisioning_errors:
        return (code, *failed(code, f"Azure ML cannot allocate the cluster's nodes: {code}"))
    if status in _OVER:
        where = f"Azure ML studio shows its logs under the job {found.name}"
        return status, Failure.TRANSIENT, f"The Azure ML job ended as {status}; {where}."
    return None


def spot_cores(usages: Iterable[Any]) -> SpotCores:
    """The quota of low-priority cores of clusters; it is not that of virtual machines."""
    for usage in usages:
        name = usage.name["value"] if isinstance(usage.name, dict) else usage.name.value
        if "lowpriority" in name.lower().replace(" ", "") and "regional" not in name.lower():
            return SpotCores(limit=usage.limit, used=_member(usage, "current_value"))
    return SpotCores(limit=None, used=0)


def _member(row: Any, name: str) -> Any:  # noqa: ANN401 - of a node or a usage
    """A member of a row: azure-ai-ml 1.35.2 keeps it as Azure named it, e.g. nodeId."""
    first, *rest = name.split("_")
    sent = first + "".join(word.title() for word in rest)
    return row.__dict__.get(sent, getattr(row, name))


def _phase(found: Any, status: str | None, *, failed: bool) -> ScaleSetPhase:  # noqa: ANN401 - AmlCompute
    state = (found.provisioning_state or "").lower()
    if state == _DELETING:
        return ScaleSetPhase.DELETING
    if failed or state in ("failed", "canceled"):
        return ScaleSetPhase.FAILED
    if status is None:
        return ScaleSetPhase.INCOMPLETE
    return ScaleSetPhase.READY if status in _RUNS else ScaleSetPhase.CREATING


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
