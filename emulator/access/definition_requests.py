"""Role definitions over ARM: built-in ones to read, custom ones to make."""

import re
import uuid
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.access import assignments, enforcement, roles
from emulator.access.actions import Need
from emulator.access.enforcement import ArmCaller
from emulator.access.roles import DEFINITION, Role
from emulator.arm.front_door import fabric_of, page, read_json
from emulator.core.errors import ArmError, invalid
from emulator.core.state import ResourceRow

_FILTER = re.compile(r"(roleName|type) eq '((?:[^']|'')*)'", re.IGNORECASE)


async def get(request: Request) -> Response:
    """Show one."""
    return JSONResponse(role_as_json(_find_role(request), _subscription(request)))


async def list_all(request: Request) -> Response:
    """List those that can be assigned at the scope; `$filter` by name or type."""
    scope = "/" + request.path_params.get("scope", "")
    fits = _filter(request.query_params.get("$filter", ""))
    matching = (role for role in roles.all_roles(fabric_of(request).state) if fits(role))
    assignable = [role for role in matching if any(_meet(scope, s) for s in role.assignable_scopes)]
    return page(request, [role_as_json(role, _subscription(request)) for role in assignable])


async def put(request: Request) -> Response:
    """Make a custom role, or change it."""
    fabric, name = fabric_of(request), _guid(request.path_params["name"])
    properties = (await read_json(request)).get("properties")
    properties = _checked(properties if isinstance(properties, dict) else {})
    if name in roles.built_in():
        text = "A built-in role cannot be changed."
        raise ArmError(403, "RoleDefinitionUpdateNotPermitted", text)
    old = roles.find(fabric.state, name)
    _check_scopes(request, *properties["assignableScopes"], *(old.assignable_scopes if old else ()))
    for role in roles.all_roles(fabric.state):
        if role.name.lower() == properties["roleName"].lower() and role.id != name:
            reason = "A custom role with the same name already exists in this directory."
            text = f"{reason} Use a different name."
            raise ArmError(409, "RoleDefinitionWithSameNameExists", text)
    resource = ResourceRow(
        id=_id(name, _subscription(request)),
        type=DEFINITION,
        location="global",
        body={"properties": properties},
        created_at=fabric.now(),
    )
    fabric.state.put(resource)
    fabric.changed()
    return JSONResponse(
        role_as_json(roles.custom(resource), _subscription(request)), status_code=201
    )


def role_as_json(role: Role, subscription: str) -> dict[str, Any]:
    """Return a role definition as ARM answers it."""
    return {
        "id": _id(role.id, subscription),
        "type": DEFINITION,
        "name": role.id,
        "properties": {
            "roleName": role.name,
            "type": "CustomRole" if role.custom else "BuiltInRole",
            "description": role.description,
            "assignableScopes": list(role.assignable_scopes),
            "permissions": role.permissions,
        },
    }


def _checked(properties: dict[str, Any]) -> dict[str, Any]:
    """Return the properties of a custom role with all members, or raise ArmError 400."""
    name, scopes = properties.get("roleName"), properties.get("assignableScopes")
    permissions = properties.get("permissions")
    if not isinstance(name, str) or not name:
        raise invalid("The role name is required.", "RoleDefinitionNameNullOrEmpty")
    if not isinstance(scopes, list) or not scopes or not all(_is_scope(s) for s in scopes):
        text = "The role needs assignable scopes: subscriptions or resource groups, without '/'."
        raise invalid(text, "MissingAssignableScopes" if not scopes else "InvalidAssignableScopes")
    if not isinstance(permissions, list) or not all(isinstance(p, dict) for p in permissions):
        raise invalid("The role needs permissions.", "RoleDefinitionPermissionsNullOrEmpty")
    filled = [{kind: p.get(kind) or [] for kind in roles.LISTS} for p in permissions]
    for named in (p[kind] for p in filled for kind in roles.LISTS):
        for action in named if isinstance(named, list) else [None]:
            if not isinstance(action, str) or not (action == "*" or "/" in action):
                text = f"'{action}' does not match any of the actions supported by the providers."
                raise invalid(text, "InvalidActionOrNotAction")
    return {
        "roleName": name,
        "description": str(properties.get("description") or ""),
        "assignableScopes": scopes,
        "permissions": filled,
    }


def _check_scopes(request: Request, *scopes: str) -> None:
    """Raise ArmError 403 unless the caller may write role definitions at each of the scopes."""
    caller: ArmCaller = request.scope["caller"]
    for scope in scopes:
        enforcement.demand(fabric_of(request), caller, Need(f"{DEFINITION}/write", scope))


def _filter(text: str) -> Callable[[Role], bool]:
    criteria: dict[str, str] = {
        k.lower(): v.replace("''", "'").lower() for k, v in _FILTER.findall(text)
    }

    def fits(role: Role) -> bool:
        kind = "customrole" if role.custom else "builtinrole"
        return criteria.get("rolename", role.name.lower()) == role.name.lower() and (
            criteria.get("type", kind) == kind
        )

    return fits


def _meet(scope: str, assignable: str) -> bool:
    return assignments.within(scope, assignable) or assignments.within(assignable, scope)


def _is_scope(scope: object) -> bool:
    return isinstance(scope, str) and scope.lower().startswith("/subscriptions/")


def _find_role(request: Request) -> Role:
    name = request.path_params["name"]
    if role := roles.find(fabric_of(request).state, name):
        return role
    text = f"The specified role definition with ID '{name.replace('-', '')}' does not exist."
    raise ArmError(404, "RoleDefinitionDoesNotExist", text)


def _guid(name: str) -> str:
    try:
        return str(uuid.UUID(name))
    except ValueError:
        rule = "The role definition ID must be a GUID."
        text = f"The role definition ID '{name}' is not valid. {rule}"
        raise invalid(text, "InvalidRoleDefinitionId") from None


def _id(name: str, subscription: str) -> str:
    return f"{subscription}/providers/{DEFINITION}/{name}"


def _subscription(request: Request) -> str:
    """Return the subscription of the scope, which begins the ids in answers; "" at the root."""
    kind, _, remainder = request.path_params.get("scope", "").partition("/")
    return f"/subscriptions/{remainder.split('/')[0]}" if kind.lower() == "subscriptions" else ""
