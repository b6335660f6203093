"""What is being deleted goes in turn: the nodes, then their cluster, then the workspace.

So whoever is told that something is gone can rely on it that no process of it is left.
"""

from starlette.requests import Request

from emulator.aml.assets import COMPUTE, PROVIDER, WORKSPACE, of_type
from emulator.arm import operations
from emulator.arm.front_door import base_url
from emulator.core.state import OperationRow, ResourceRow
from emulator.fabric import Fabric

KIND = "delete_azureml"  # of operations
NEVER = 10 * 365 * 86400.0  # seconds until a deletion ends by itself: it ends with the last node


def begin_delete(fabric: Fabric, resource: ResourceRow, location: str) -> OperationRow:
    """Begin deleting a workspace or a cluster; a second call joins the first."""
    if running := fabric.operations(resource.key, KIND):
        return running[0]
    fabric.state.change(resource, provisioning_state="Deleting")
    return operations.begin_operation(fabric, KIND, resource, location=location, seconds=NEVER)


def headers(request: Request, operation: OperationRow, kind: str) -> dict[str, str]:
    """Return the headers with the address of the operation."""
    subscription_url = (
        f"{base_url(request)}/subscriptions/{operation.subscription}/providers/{PROVIDER}"
    )
    query = f"{operation.id}?api-version={request.query_params['api-version']}&service=new"
    prefix = f"{subscription_url}/locations/{operation.location}"
    return {
        "Azure-AsyncOperation": f"{prefix}/{kind}OperationsStatus/{query}",
        "Location": f"{prefix}/{kind}OperationsResults/{query}",
        "Retry-After": "1",
    }


def advance_deletions(fabric: Fabric, now: float) -> bool:
    """Bring every deletion one step further."""
    return any([_mark(fabric), _empty(fabric), _forget(fabric), _close(fabric, now)])


def _mark(fabric: Fabric) -> bool:
    """Mark clusters whose workspace or group is going."""
    clusters = [
        c
        for c in of_type(fabric, COMPUTE)
        if not _is_being_deleted(c) and _has_no_parent(fabric, c)
    ]
    for compute in clusters:
        fabric.state.change(compute, provisioning_state="Deleting")
    return bool(clusters)


def _has_no_parent(fabric: Fabric, compute: ResourceRow) -> bool:
    parts = compute.key.split("/")
    group = fabric.state.groups.get("/".join(parts[:5]))
    workspace = fabric.state.resources.get("/".join(parts[:9]))
    return not group or group.deleting or not workspace or _is_being_deleted(workspace)


def _empty(fabric: Fabric) -> bool:
    """Delete the hidden sets whose cluster is gone or going."""
    retained = {c.key for c in of_type(fabric, COMPUTE) if not _is_being_deleted(c)}
    hidden = [s for s in fabric.state.scale_sets.values() if s.owner and s.owner not in retained]
    undeleted = [s for s in hidden if not fabric.operations(s.key, "delete")]
    for scale_set in undeleted:
        operations.preempt(fabric, scale_set.key, "put")
        fabric.state.change(scale_set, provisioning_state="Deleting")
        operations.begin_operation(
            fabric, "delete", scale_set, seconds=fabric.settings.delete_seconds
        )
    return bool(undeleted)


def _forget(fabric: Fabric) -> bool:
    """Remove what has no node left, with all its parts."""
    owners = [f"{s.owner}/" for s in fabric.state.scale_sets.values() if s.owner]
    rows = [*of_type(fabric, COMPUTE), *of_type(fabric, WORKSPACE)]
    removable = [
        r
        for r in rows
        if _is_being_deleted(r) and not any(o.startswith(f"{r.key}/") for o in owners)
    ]
    for resource in removable:
        for key, row in list(fabric.state.resources.items()):
            if f"{key}/".startswith(f"{resource.key}/"):
                fabric.state.remove(row)
    return bool(removable)


def _close(fabric: Fabric, now: float) -> bool:
    """End the deletions of what is gone, also if another call removed it."""
    running = [o for o in fabric.under_way() if o.kind == KIND]
    finished = [o for o in running if o.target not in fabric.state.resources]
    for operation in finished:
        fabric.state.end(operation, now)
    return bool(finished)


def _is_being_deleted(resource: ResourceRow) -> bool:
    return resource.provisioning_state == "Deleting"
