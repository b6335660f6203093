"""Compute clusters as ARM sees them; `clusters` moves their nodes."""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.aml import nodes, removal
from emulator.aml.assets import (
    COMPUTE,
    PROVIDER,
    find_workspace,
    lookup,
    lookup_part,
    of_type,
    part_id,
    private,
    properties,
    region,
    resource_as_json,
    user_error,
)
from emulator.aml.compute_forms import cluster_body, new, resize, set_scale
from emulator.arm import operations
from emulator.arm.front_door import fabric_of, page, read_json
from emulator.compute.usages import Region, limit, used_cores
from emulator.core.catalog import catalog
from emulator.core.errors import ArmError, invalid
from emulator.core.state import ResourceRow
from emulator.core.timestamps import timestamp
from emulator.fabric import Fabric

PATH = "computes/{compute}"
QUOTAS = {
    "lowPriorityCores": "Cluster LowPriority vCPUs",
    "cores": "Cluster Dedicated Regional vCPUs",
}


async def put(request: Request) -> Response:
    """Create a cluster, or give an existing one new scale settings."""
    fabric, workspace = fabric_of(request), find_workspace(request)
    body = cluster_body(await read_json(request))
    old = lookup_part(request, PATH)
    if old is None:
        compute = new(part_id(request, PATH), workspace.location, body, fabric.now())
        _check_new(fabric, compute)
    else:
        compute = resize(fabric, old, body)
    return _accept(request, fabric, compute, new=old is None)


async def patch(request: Request) -> Response:
    """Give a cluster new scale settings."""
    fabric, compute = fabric_of(request), find(request)
    body = (await read_json(request)).get("properties")
    inner = body.get("properties") if isinstance(body, dict) else None
    settings = inner.get("scaleSettings") if isinstance(inner, dict) else None
    if not isinstance(settings, dict):
        raise user_error(400, "Only properties.scaleSettings of an AmlCompute can be updated.")
    compute = set_scale(fabric, compute, settings)
    fabric.changed()
    return JSONResponse(_body(fabric, compute))


async def get(request: Request) -> Response:
    """Show one."""
    return JSONResponse(_body(fabric_of(request), find(request)))


async def list_all(request: Request) -> Response:
    """List those of the workspace."""
    fabric = fabric_of(request)
    rows = of_type(fabric, COMPUTE, find_workspace(request))
    return page(request, [_body(fabric, r) for r in rows])


async def list_nodes(request: Request) -> Response:
    """List every node with its state and the run that is on it."""
    fabric, compute = fabric_of(request), find(request)
    rows = [
        {
            "nodeId": node.id,
            "privateIpAddress": node.instance.address,
            "publicIpAddress": None,
            "port": None,
            "nodeState": node.state,
            "runId": node.run,
        }
        for node in nodes.nodes(fabric, compute)
    ]
    return JSONResponse({"nodes": rows, "nextLink": None})


async def delete(request: Request) -> Response:
    """Begin deleting the cluster; jobs on it lose their nodes."""
    fabric, compute = fabric_of(request), lookup_part(request, PATH)
    if compute is None:
        return Response(status_code=204)
    if "underlyingResourceAction" not in request.query_params:
        raise invalid("The query parameter underlyingResourceAction is required.", "UserError")
    operation = removal.begin_delete(fabric, compute, region(compute))
    fabric.changed()
    return Response(status_code=202, headers=removal.headers(request, operation, "compute"))


async def result(request: Request) -> Response:
    """Answer the Location of a create or delete, of workspaces too."""
    fabric, operation = fabric_of(request), operations.find_operation(request)
    if operation.status == "InProgress":
        headers = {"Location": str(request.url), "Retry-After": "1"}
        return Response(status_code=202, headers=headers)
    compute = lookup(fabric, operation.target)
    return JSONResponse(_body(fabric, compute)) if compute else Response(status_code=204)


async def sizes(request: Request) -> Response:
    """List the VM sizes that clusters of a region can have."""
    location = request.path_params["location"].lower()
    offered = [o.size for o in catalog().offers if o.location == location]
    rows = [
        {"name": size.name, "family": size.family, "vCPUs": size.vcpus, "lowPriorityCapable": True}
        for size in offered
    ]
    return JSONResponse({"value": rows})


async def usages(request: Request) -> Response:
    """List the core quotas of a region, which are Azure ML's own."""
    fabric, names = fabric_of(request), request.path_params
    quota_region = Region.of(names["subscription"], names["location"])
    scope = (
        f"/subscriptions/{quota_region.subscription}/providers/{PROVIDER}"
        f"/locations/{quota_region.location}"
    )
    rows = [
        {
            "id": f"{scope}/usages/{name}",
            "amlWorkspaceLocation": quota_region.location,
            "type": f"{PROVIDER}/usages",
            "unit": "Count",
            "currentValue": used_cores(
                fabric, quota_region, spot=name == "lowPriorityCores", hidden=True
            ),
            "limit": limit(fabric, quota_region, name, hidden=True),
            "name": {"value": text, "localizedValue": text},
        }
        for name, text in QUOTAS.items()
    ]
    return JSONResponse({"value": rows})


def find(request: Request) -> ResourceRow:
    """Return the compute that the path names, or raise ArmError."""
    if (compute := lookup_part(request, PATH)) is None:
        name = request.path_params["compute"]
        raise ArmError(404, "ResourceNotFound", f"The specified compute '{name}' was not found.")
    return compute


def _check_new(fabric: Fabric, compute: ResourceRow) -> None:
    """Raise ArmError if the name is taken in the region, or no node can ever be had there."""
    namesakes = [c for c in of_type(fabric, COMPUTE) if c.name.lower() == compute.name.lower()]
    if any(region(namesake) == region(compute) for namesake in namesakes):
        raise user_error(
            409, f"Compute {compute.name} exists in {region(compute)}: choose another name."
        )
    inner = properties(compute)["properties"]
    size = catalog().size(inner["vmSize"])
    quota_region = Region(compute.subscription, region(compute))
    quota = "lowPriorityCores" if inner["vmPriority"] == "LowPriority" else "cores"
    most = limit(fabric, quota_region, quota, hidden=True)
    if size and most < size.vcpus:  # in the words of several users' reports
        raise ArmError(
            400,
            "ClusterMinNodesExceedCoreQuota",
            f"The specified subscription has a total vCPU quota of {most} and cannot accomodate "
            f"for at least 1 requested managed compute node which maps to {size.vcpus} vCPUs.",
        )


def _accept(request: Request, fabric: Fabric, compute: ResourceRow, *, new: bool) -> Response:
    fabric.state.put(compute)
    operation = operations.begin_operation(
        fabric,
        "put",
        compute,
        location=region(compute),
        seconds=fabric.settings.create_seconds if new else 0.0,
    )
    fabric.changed()
    return JSONResponse(
        _body(fabric, compute),
        status_code=201 if new else 200,
        headers=removal.headers(request, operation, "compute"),
    )


def _body(fabric: Fabric, compute: ResourceRow) -> dict[str, Any]:
    """Return the compute with the states of its nodes."""
    facts, inner = private(compute), properties(compute)["properties"]
    members = nodes.nodes(fabric, compute)
    counts = {f"{s}NodeCount": sum(n.state == s for n in members) for s in nodes.NODE_STATES}
    allocation = {
        "allocationState": nodes.allocation_state(fabric, compute),
        "allocationStateTransitionTime": timestamp(facts["resized_at"]),
        # The preempted count, as in Batch; the one in the place of such a node does not.
        "currentNodeCount": min(len(members), int(inner["scaleSettings"]["maxNodeCount"])),
        "targetNodeCount": nodes.target_node_count(fabric, compute),
        "nodeStateCounts": counts,
        "errors": facts["errors"] or None,
    }
    return resource_as_json(
        compute,
        computeLocation=region(compute),
        createdOn=timestamp(compute.created_at),
        modifiedOn=timestamp(facts["resized_at"]),
        isAttachedCompute=False,
        disableLocalAuth=True,
        provisioningState=_provisioning(fabric, compute),
        provisioningErrors=None,
        properties=inner | allocation,
    )


def _provisioning(fabric: Fabric, compute: ResourceRow) -> str:
    """Return the cluster's provisioning state, which its nodes do not change."""
    state = compute.provisioning_state
    if state == "Succeeded" and fabric.operations(compute.key, "put"):
        return "Updating"
    if state == "Creating" and not fabric.operations(compute.key, "put"):
        return "Succeeded"  # the operation ended in this step
    return state
