"""What clusters do as time passes: take nodes for their jobs, let idle ones go, and end.

The chore `tend` compares what a cluster should have with what it has; a restart in between loses
and doubles nothing.
"""

import base64
import shlex
import sys
import uuid
from pathlib import Path
from typing import Any

from emulator.aml.assets import COMPUTE, amend, of_type, private, properties, region
from emulator.aml.nodes import free_nodes, hidden_set_location, nodes, set_of, target_node_count
from emulator.arm import operations
from emulator.compute import scale_sets
from emulator.compute.usages import check_quota
from emulator.core.catalog import catalog
from emulator.core.errors import ArmError
from emulator.core.state import ResourceRow, ScaleSetRow
from emulator.fabric import Fabric
from emulator.faults import scale_set_faults

RETRY = 60.0  # seconds after a refused allocation
AGENT = Path(__file__).with_name("agent.py")


def tend(fabric: Fabric, now: float) -> bool:
    """Bring every cluster one step nearer to what it should be."""
    changed = [_tend(fabric, compute, now) for compute in of_type(fabric, COMPUTE)]
    return any(changed)


def _tend(fabric: Fabric, compute: ResourceRow, now: float) -> bool:
    if compute.provisioning_state == "Deleting" or fabric.operations(compute.key, "put"):
        return False
    scale_set = set_of(fabric, compute)
    changed = compute.provisioning_state != "Succeeded"
    if changed:
        fabric.state.change(compute, provisioning_state="Succeeded")
    if scale_set is None:
        scale_set = _make_set(fabric, compute, now)
    if scale_set.model["tags"] != compute.body["tags"]:
        tagged = scale_set.model | {"tags": compute.body["tags"]}
        scale_set = fabric.state.change(scale_set, model=tagged)
    changed |= _note_refusal(fabric, compute, scale_set, now) | _note_idle(fabric, compute, now)
    compute, scale_set = fabric.state.now(compute), fabric.state.now(scale_set)
    changed |= _shrink(fabric, compute, scale_set, now)
    return changed or _grow(fabric, compute, scale_set, now)


def _note_refusal(fabric: Fabric, compute: ResourceRow, scale_set: ScaleSetRow, now: float) -> bool:
    """Keep why nodes could not be allocated, and try again later."""
    if scale_set.error is None:
        return False
    _refused(fabric, compute, scale_set.error["code"], scale_set.error["message"], now)
    fabric.state.change(scale_set, error=None, provisioning_state="Succeeded")
    return True


def _refused(fabric: Fabric, compute: ResourceRow, code: str, message: str, now: float) -> None:
    errors = [{"error": {"code": code, "message": message}}]
    amend(fabric, compute, errors=errors, retry_at=now + RETRY)


def _note_idle(fabric: Fabric, compute: ResourceRow, now: float) -> bool:
    """Remember since when each node has stood idle."""
    before: dict[str, float] = private(compute)["idle_since"]
    idle = [n.instance.instance_id for n in free_nodes(fabric, compute)]
    after = {name: before.get(name, now) for name in idle}
    if after != before:
        amend(fabric, compute, idle_since=after)
    return after != before


def _shrink(fabric: Fabric, compute: ResourceRow, scale_set: ScaleSetRow, now: float) -> bool:
    """Let go what is broken or replaced, and what has been idle for too long."""
    members = nodes(fabric, compute)
    broken = [n.instance.instance_id for n in members if n.state == "unusable"]
    living = sum(n.is_present for n in members)
    since: dict[str, float] = private(compute)["idle_since"]
    scale = properties(compute)["properties"]["scaleSettings"]
    patience = float(private(compute)["idle_seconds"])
    idle = [
        name
        for name, at in since.items()
        if now - at >= patience or living > int(scale["maxNodeCount"])
    ]
    spare = max(living - target_node_count(fabric, compute), 0)
    removable = [*broken, *idle[:spare], *_replaced(fabric, compute)]
    if not removable:
        return False
    operations.begin_operation(
        fabric,
        "delete_instances",
        scale_set,
        seconds=fabric.settings.delete_seconds,
        instance_ids=tuple(removable),
    )
    amend(fabric, compute, resized_at=now)
    return True


def _replaced(fabric: Fabric, compute: ResourceRow) -> list[str]:
    """Return the preempted nodes whose places are taken, or not needed."""
    members = nodes(fabric, compute)
    preempted = [n.instance.instance_id for n in members if n.instance.phase == "deallocated"]
    ready = sum(n.state in ("idle", "running") and n.is_present for n in members)
    return preempted[max(target_node_count(fabric, compute) - ready, 0) :] if preempted else []


def _grow(fabric: Fabric, compute: ResourceRow, scale_set: ScaleSetRow, now: float) -> bool:
    """Ask for the nodes that are missing."""
    missing = target_node_count(fabric, compute) - sum(n.is_present for n in nodes(fabric, compute))
    busy = fabric.operations(scale_set.key, "put")
    if missing <= 0 or busy or now < float(private(compute)["retry_at"]):
        return False
    size = catalog().size(scale_set.vm_size)
    assert size, "the size was checked when the cluster was put"
    scale_set = fabric.state.put(scale_set.resized(len(scale_set.instances)))
    larger = scale_set.resized(scale_set.capacity + missing)
    fault = scale_set_faults.find_fault(fabric, scale_set, "PUT")
    try:
        scale_set_faults.refuse(fabric, larger, fault)
        check_quota(fabric, larger, size.vcpus)
    except ArmError as error:
        _refused(fabric, compute, *_as_ml_error(error), now)
        return True
    scale_sets.grow(fabric, scale_set, missing)
    for operation in fabric.operations(scale_set.key, "put"):
        scale_set_faults.apply_fault(fabric, operation, fault)
    amend(fabric, compute, errors=[], resized_at=now)
    return True


def _as_ml_error(error: ArmError) -> tuple[str, str]:
    quota = "exceeding approved" in error.message
    return ("ClusterCoreQuotaReached" if quota else error.code), error.message


def _make_set(fabric: Fabric, compute: ResourceRow, now: float) -> ScaleSetRow:
    """Make the scale set behind a cluster, empty."""
    inner = properties(compute)["properties"]
    # An evicted node is shown as preempted until another takes its place.
    spot: dict[str, Any] = {"priority": "Spot", "evictionPolicy": "Deallocate"}
    boot = f"#!/bin/sh\nexec {shlex.join([sys.executable, '-I', '-S', str(AGENT)])}\n"
    group, name = hidden_set_location(compute)
    scale_set = ScaleSetRow(
        subscription=compute.subscription,
        group=group,
        name=name,
        model={
            "location": region(compute),
            "tags": compute.body["tags"],
            "identity": compute.body.get("identity") or {},
            "sku": {"name": inner["vmSize"], "tier": "Standard", "capacity": 0},
            "properties": {
                "orchestrationMode": "Uniform",
                "singlePlacementGroup": True,
                "overprovision": False,
                "upgradePolicy": {"mode": "Manual"},
                "virtualMachineProfile": {
                    **(spot if inner["vmPriority"] == "LowPriority" else {}),
                    "osProfile": {"computerNamePrefix": compute.name[:24]},
                },
            },
        },
        custom_data=base64.b64encode(boot.encode()).decode(),
        created_at=now,
        unique_id=str(uuid.uuid4()),
        provisioning_state="Succeeded",
        owner=compute.key,
    )
    return fabric.state.put(scale_set)
