"""Whether a caller may do what it asks, when the emulator enforces access (`--access enforced`)."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from emulator.access import assignments, roles
from emulator.access.actions import Need, lists, needed, type_of
from emulator.access.assignments import Assignment, within
from emulator.access.roles import Role
from emulator.core.errors import ArmError
from emulator.fabric import Fabric

JOIN = "{}/join/action"
ASSIGN = "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action"
# What a request that names one of these must be allowed to do with it.
JOINED = {
    kind.lower(): JOIN.format(kind)
    for kind in (
        "Microsoft.Network/virtualNetworks/subnets",
        "Microsoft.Network/networkSecurityGroups",
        "Microsoft.Network/natGateways",
        "Microsoft.Network/publicIPAddresses",
        "Microsoft.Network/loadBalancers/backendAddressPools",
        "Microsoft.Network/loadBalancers/inboundNatPools",
        "Microsoft.Network/loadBalancers/probes",
    )
}
DEPLOYMENT = "microsoft.resources/deployments"
SEE_GROUP = "Microsoft.Resources/subscriptions/resourceGroups/read"
# A role anywhere in a subscription is enough for these.
SEE_SUBSCRIPTION = (
    "microsoft.resources/subscriptions/read",
    "microsoft.resources/subscriptions/locations/read",
    "microsoft.resources/subscriptions/providers/read",
)
Sees = Callable[[str], bool]
EVERYTHING = "microsoft.resources/subscriptions/resources/read"
EVERYTHING_IN_GROUP = "microsoft.resources/subscriptions/resourcegroups/resources/read"
_RESOURCE = re.compile(r"/subscriptions/[^/]+/.*/providers/[^/]+/.+", re.IGNORECASE)


@dataclass(frozen=True)
class ArmCaller:
    """Who signed in."""

    client_id: str
    object_id: str


def check(fabric: Fabric, caller: ArmCaller, method: str, path: str) -> Sees | None:
    """Raise ArmError 403 unless a role of the caller allows the request.

    Who may see some rows of a list and not all gets the list, and here what they see of it.
    """
    if (need := needed(method, path)) is None:
        return None
    partly = lists(method, path) and not permitted(fabric, caller, need)
    if partly and _reads_some(fabric, caller, need):
        return readable(fabric, caller)
    demand(fabric, caller, need)
    return readable(fabric, caller) if need.action.lower() == EVERYTHING_IN_GROUP else None


def demand(fabric: Fabric, caller: ArmCaller, need: Need) -> None:
    """Raise ArmError 403 unless a role of the caller allows it."""
    if permitted(fabric, caller, need):
        return
    raise ArmError(
        403,
        "AuthorizationFailed",
        f"The client '{caller.client_id}' with object id '{caller.object_id}' does not have "
        f"authorization to perform action '{need.action}' over scope '{need.scope}' or the scope "
        "is invalid. If access was recently granted, please refresh your credentials.",
    )


def check_links(fabric: Fabric, caller: ArmCaller, method: str, path: str, body: bytes) -> None:
    """Raise ArmError 403 unless the caller may use every resource that the body names."""
    need = needed(method, path)
    # What a deployment makes is asked for one by one.
    if need is None or type_of(path).lower() == DEPLOYMENT:
        return
    try:
        links = list(_linked(path, json.loads(body or b"{}")))
    except (ValueError, RecursionError):
        return  # the reader of the body refuses it
    lacking = [n for n in links if not permitted(fabric, caller, n)]
    if not lacking:
        return
    raise ArmError(
        403,
        "LinkedAuthorizationFailed",
        f"The client '{caller.client_id}' with object id '{caller.object_id}' has permission to "
        f"perform action '{need.action}' on scope '{need.scope}'; however, it does not have "
        f"permission to perform action(s) '{','.join(n.action for n in lacking)}' on the linked "
        f"scope(s) '{','.join(n.scope for n in lacking)}' (respectively) or the linked scope(s) "
        "are invalid.",
    )


def permitted(fabric: Fabric, caller: ArmCaller, need: Need) -> bool:
    """Whether a role allows it; everything is allowed where nothing is enforced."""
    if fabric.settings.access == "open":
        return True
    if need.action.lower() in SEE_SUBSCRIPTION:
        return sees_subscription(fabric, caller, need.scope.split("/", 2)[-1].split("/")[0])
    caller_roles = assignments.roles_at(fabric.state, caller.object_id, need.scope)
    return any(role.allows(need.action) for role in caller_roles)


def readable(fabric: Fabric, caller: ArmCaller) -> Sees:
    """Whether the caller may read the resource or group with an id; looks roles up once."""
    if fabric.settings.access == "open":
        return lambda _: True
    scoped_roles = list(_roles_of(fabric, caller))

    def fits(id_: str) -> bool:
        action = f"{type_of(id_)}/read" if "/providers/" in id_ else SEE_GROUP
        return any(within(id_, scope) and role.allows(action) for scope, role in scoped_roles)

    return fits


def sees(fabric: Fabric, caller: ArmCaller, group_id: str) -> bool:
    """Whether a list of resource groups shows this one to the caller."""
    return permitted(fabric, caller, Need(SEE_GROUP, group_id))


def sees_subscription(fabric: Fabric, caller: ArmCaller, subscription: str) -> bool:
    """Whether the caller has any role in the subscription."""
    inside = f"/subscriptions/{subscription}"
    return fabric.settings.access == "open" or any(
        within(a.scope, inside) for a in _own_assignments(fabric, caller)
    )


def _own_assignments(fabric: Fabric, caller: ArmCaller) -> Iterator[Assignment]:
    all_assignments = assignments.every(fabric.state)
    return (a for a in all_assignments if a.principal_id == caller.object_id)


def _roles_of(fabric: Fabric, caller: ArmCaller) -> Iterator[tuple[str, Role]]:
    """Iterate over the roles of the caller, each with its scope."""
    for assignment in _own_assignments(fabric, caller):
        if role := roles.find(fabric.state, assignment.role_id):
            yield assignment.scope, role


def _reads_some(fabric: Fabric, caller: ArmCaller, need: Need) -> bool:
    """Whether a role somewhere in the subscription allows it; who reads nothing is to hear so."""
    inside = need.scope.partition("/providers/")[0]
    caller_roles = [role for scope, role in _roles_of(fabric, caller) if within(scope, inside)]
    if need.action.lower() == EVERYTHING:
        return bool(caller_roles)
    return any(role.allows(need.action) for role in caller_roles)


def _linked(path: str, body: Any) -> Iterator[Need]:  # noqa: ANN401 - JSON
    identities = body.get("identity") if isinstance(body, dict) else None
    named = identities.get("userAssignedIdentities") if isinstance(identities, dict) else None
    for name in named if isinstance(named, dict) else ():
        yield Need(ASSIGN, name)
    seen = set()
    for name in _ids(body):
        is_own = within(name, path)
        if (
            (action := JOINED.get(type_of(name).lower()))
            and not is_own
            and name.lower() not in seen
        ):
            seen.add(name.lower())
            yield Need(action, name)


def _ids(value: Any) -> Iterator[str]:  # noqa: ANN401 - JSON
    """Every resource id under a member ``id``."""
    if isinstance(value, dict):
        name = value.get("id")
        if isinstance(name, str) and _RESOURCE.fullmatch(name):
            yield name
    elif not isinstance(value, list):
        return
    for inner in value.values() if isinstance(value, dict) else value:
        yield from _ids(inner)
