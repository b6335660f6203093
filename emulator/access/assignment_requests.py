"""Role assignments over ARM, at a subscription, a resource group or a resource."""

import re
import uuid
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.access import assignments, roles
from emulator.access.assignments import ASSIGNMENT, Assignment, within
from emulator.access.enforcement import ArmCaller
from emulator.access.identity.directory import TENANT, by_object
from emulator.arm.front_door import fabric_of, page, read_json
from emulator.core.errors import ArmError, group_not_found, invalid
from emulator.core.state import ResourceRow
from emulator.core.timestamps import timestamp

FIXED = ("roleDefinitionId", "principalId", "scope")
TYPES = ("User", "Group", "ServicePrincipal", "ForeignGroup", "Device")
_GROUP = re.compile(r"/subscriptions/[^/]+/resourcegroups/([^/]+)", re.IGNORECASE)
_OF = re.compile(r"(?:principalId eq |assignedTo\()'([^']*)'", re.IGNORECASE)


async def put(request: Request) -> Response:
    """Give a principal a role; the same again under the same name is harmless."""
    fabric, scope = fabric_of(request), _scope(request)
    group, name = _GROUP.match(scope), request.path_params["name"]
    if group and group[0].lower() not in fabric.state.groups:  # the resource may be missing
        raise group_not_found(group[1])
    if not _is_guid(name):
        text = (
            f"The role assignment ID '{name}' is not valid. The role assignment ID must be a GUID."
        )
        raise invalid(text, "InvalidRoleAssignmentId")
    properties = _checked(await read_json(request))
    role = roles.find(fabric.state, properties["roleDefinitionId"])
    if role is None or not any(within(scope, s) for s in role.assignable_scopes):
        named = properties["roleDefinitionId"].rpartition("/")[2].replace("-", "")
        text = f"The specified role definition with ID '{named}' does not exist."
        raise invalid(text, "RoleDefinitionDoesNotExist")
    if (
        "principalType" not in properties
        and by_object(fabric.state, properties["principalId"]) is None
    ):
        raise _unknown_principal(properties["principalId"])
    at, by = timestamp(fabric.now()), _caller(request).object_id
    dates = {"createdOn": at, "updatedOn": at, "createdBy": by, "updatedBy": by}
    resource = ResourceRow(
        id=_id(request),
        type=ASSIGNMENT,
        location="global",
        body={"properties": properties | {"scope": scope} | dates},
        created_at=fabric.now(),
    )
    old = fabric.state.resources.get(resource.key)
    if old is None:
        _check_single(request, role.id, properties["principalId"], scope)
        fabric.state.put(resource)
        fabric.changed()
    elif any(_plain(old, name) != _plain(resource, name) for name in FIXED):
        text = "Tenant ID, application ID, principal ID, and scope are not allowed to be updated."
        raise invalid(text, "RoleAssignmentUpdateNotPermitted")
    return JSONResponse(_as_json(old or resource), status_code=200 if old else 201)


async def get(request: Request) -> Response:
    """Show one."""
    resource = fabric_of(request).state.resources.get(_id(request).lower())
    if resource is None:
        name = request.path_params["name"]
        text = f"The role assignment '{name}' is not found."
        raise ArmError(404, "RoleAssignmentNotFound", text)
    return JSONResponse(_as_json(resource))


async def delete(request: Request) -> Response:
    """Take a role away; 204 where there is no such assignment."""
    fabric = fabric_of(request)
    resource = fabric.state.resources.get(_id(request).lower())
    if resource is None:
        return Response(status_code=204)
    fabric.state.remove(resource)
    fabric.changed()
    return JSONResponse(_as_json(resource))


async def list_all(request: Request) -> Response:
    """List those at, above and below the scope; `$filter` narrows."""
    fits = _filter(request.query_params.get("$filter", ""), _scope(request))
    rows = [a for a in assignments.every(fabric_of(request).state) if fits(a)]
    return page(request, [_as_json(a.resource) for a in rows])


async def permissions(request: Request) -> Response:
    """List the permissions of the caller at the scope."""
    fabric, caller = fabric_of(request), _caller(request)
    if fabric.settings.access == "open":
        return JSONResponse({"value": [{"actions": ["*"], "notActions": []}]})
    caller_roles = assignments.roles_at(fabric.state, caller.object_id, _scope(request))
    return JSONResponse({"value": [p for role in caller_roles for p in role.permissions]})


def _checked(body: dict[str, Any]) -> dict[str, str]:
    """Return the properties of the assignment in a body, or raise ArmError 400."""
    properties = body.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    for name in ("roleDefinitionId", "principalId"):
        if not isinstance(properties.get(name), str) or not properties[name]:
            raise invalid(f"The property '{name}' is required.", "InvalidRequestContent")
    if not _is_guid(properties["principalId"]):
        principal = properties["principalId"]
        text = f"The principal ID '{principal}' is not valid. Principal ID must be a GUID."
        raise invalid(text, "InvalidPrincipalId")
    if properties.get("principalType") not in (None, *TYPES):
        raise invalid(f"The principal type must be one of {TYPES}.", "InvalidRequestContent")
    members = (*FIXED[:2], "principalType", "description", "condition", "conditionVersion")
    return {name: str(properties[name]) for name in members if properties.get(name) is not None}


def _check_single(request: Request, role: str, principal: str, scope: str) -> None:
    for assignment in assignments.every(fabric_of(request).state):
        same = (assignment.role_id, assignment.principal_id, assignment.scope.lower())
        if same == (role, principal.lower(), scope.lower()):
            conflict = assignment.resource.name.replace("-", "")
            text = (
                "The role assignment already exists. The ID of the conflicting role assignment "
                f"is {conflict}."
            )
            raise ArmError(409, "RoleAssignmentExists", text)


def _unknown_principal(principal: str) -> ArmError:
    text = (
        f"Principal {principal.replace('-', '')} does not exist in the directory {TENANT}. Check "
        "that you have the correct principal ID. If you are creating this principal and then "
        "immediately assigning a role, this error might be related to a replication delay. In "
        "this case, set the role assignment principalType property to a value, such as "
        "ServicePrincipal, User, or Group.  See https://aka.ms/docs-principaltype"
    )
    return invalid(text, "PrincipalNotFound")


def _filter(text: str, scope: str) -> Callable[[Assignment], bool]:
    match = _OF.search(text)
    principal = match[1].lower() if match else ""
    at_scope = "atscope()" in text.lower()

    def fits(assignment: Assignment) -> bool:
        above = within(scope, assignment.scope)
        below = not at_scope and within(assignment.scope, scope)
        return (above or below) and principal in ("", assignment.principal_id)

    return fits


def _as_json(resource: ResourceRow) -> dict[str, Any]:
    defaults = {"principalType": "ServicePrincipal", "condition": None, "conditionVersion": None}
    properties = defaults | resource.body["properties"]
    return {"id": resource.id, "type": ASSIGNMENT, "name": resource.name, "properties": properties}


def _plain(resource: ResourceRow, name: str) -> str:
    """Return a member that is fixed, normalized: lower case, the GUID of a role only."""
    value = str(resource.body["properties"][name]).lower()
    return value.rpartition("/")[2] if name == "roleDefinitionId" else value


def _caller(request: Request) -> ArmCaller:
    caller: ArmCaller = request.scope["caller"]
    return caller


def _scope(request: Request) -> str:
    scope: str = request.path_params.get("scope", "")
    return "/" + scope.strip("/")


def _id(request: Request) -> str:
    scope = _scope(request).rstrip("/")
    return f"{scope}/providers/{ASSIGNMENT}/{request.path_params['name']}"


def _is_guid(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True
