"""The things of a workspace: how each is named, found and shown.

All are `state.Resource`. What Azure keeps to itself about one lies in its body under "private".
"""

from typing import Any

from starlette.requests import Request

from emulator.arm.front_door import fabric_of
from emulator.arm.resource_groups import find_group
from emulator.core.errors import ArmError, resource_not_found
from emulator.core.state import ResourceRow, group_id
from emulator.fabric import Fabric

PROVIDER = "Microsoft.MachineLearningServices"
WORKSPACE = f"{PROVIDER}/workspaces"
COMPUTE = f"{WORKSPACE}/computes"
JOB = f"{WORKSPACE}/jobs"
ENVIRONMENT = f"{WORKSPACE}/environments/versions"


def workspace_id(request: Request) -> str:
    """Return the id of the workspace that the path names."""
    names = request.path_params
    group = group_id(names["subscription"], names["group"])
    return f"{group}/providers/{WORKSPACE}/{names['workspace']}"


def find_workspace(request: Request) -> ResourceRow:
    """Return the workspace that the path names, or raise ArmError."""
    find_group(request)
    workspace = fabric_of(request).state.resources.get(workspace_id(request).lower())
    if workspace is None:
        names = request.path_params
        raise resource_not_found(f"{WORKSPACE}/{names['workspace']}", names["group"])
    if request.method in ("PUT", "PATCH"):
        refuse_while_going(workspace)
    return workspace


def refuse_while_going(workspace: ResourceRow) -> None:
    """Raise ArmError if it is being deleted."""
    if workspace.provisioning_state == "Deleting":
        raise user_error(409, f"Workspace {workspace.name} is being deleted.")


def lookup(fabric: Fabric, id_: str) -> ResourceRow | None:
    """Return the resource with this id, in upper or lower case."""
    return fabric.state.resources.get(id_.lower())


def lookup_part(request: Request, path: str) -> ResourceRow | None:
    """Return the part of the workspace in the path, such as "jobs/{job}"."""
    return lookup(fabric_of(request), part_id(request, path))


def part_id(request: Request, path: str) -> str:
    """Return the id of a part of the workspace that the path names, or raise ArmError."""
    return f"{find_workspace(request).id}/{path.format(**request.path_params)}"


def of_type(fabric: Fabric, kind: str, below: ResourceRow | None = None) -> list[ResourceRow]:
    """Return all resources of a type, or those of one workspace."""
    start = f"{below.key}/" if below else ""
    rows = list(fabric.state.resources.values())
    return [r for r in rows if r.type == kind and r.key.startswith(start)]


def properties(resource: ResourceRow) -> dict[str, Any]:
    """Return the properties that are shown."""
    members: dict[str, Any] = resource.body["properties"]
    return members


def private(resource: ResourceRow) -> dict[str, Any]:
    """Return the properties that are not shown."""
    hidden: dict[str, Any] = resource.body["private"]
    return hidden


def amend(
    fabric: Fabric,
    resource: ResourceRow,
    visible: dict[str, Any] | None = None,
    **hidden: Any,  # noqa: ANN401 - JSON
) -> ResourceRow:
    """Change some properties that are shown, and (by name) some that are not."""
    body = fabric.state.now(resource).body
    parts = {
        "properties": body["properties"] | (visible or {}),
        "private": body["private"] | hidden,
    }
    return fabric.state.change(resource, body=body | parts)


def resource_as_json(resource: ResourceRow, **overrides: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """Return the resource as ARM answers it; ``overrides`` replaces some of its properties."""
    members = {k: v for k, v in resource.body.items() if k not in ("properties", "private")}
    return {
        "id": resource.id,
        "name": resource.name,
        "type": resource.type,
        **members,
        "properties": properties(resource) | overrides,
    }


def user_error(status: int, message: str) -> ArmError:
    """Return the error with which Azure ML refuses a request."""
    return ArmError(status, "UserError", message)


def region(resource: ResourceRow) -> str:
    """Return the region of a compute or job. Those with a location are listed on their own."""
    return str(private(resource)["region"])
