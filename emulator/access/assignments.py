"""Role assignments as they are kept: the principal, its role and the scope."""

from collections.abc import Iterator
from dataclasses import dataclass

from emulator.access import roles
from emulator.access.roles import Role
from emulator.core.state import EmulatorState, ResourceRow

ASSIGNMENT = "Microsoft.Authorization/roleAssignments"


@dataclass(frozen=True)
class Assignment:
    """One of them."""

    resource: ResourceRow
    principal_id: str
    role_id: str  # the GUID, in lower case
    scope: str


def every(state: EmulatorState) -> Iterator[Assignment]:
    """All of them, in the order in which they were made."""
    for resource in state.resources.values():
        if resource.type == ASSIGNMENT:
            properties = resource.body["properties"]
            role = str(properties["roleDefinitionId"]).rpartition("/")[2].lower()
            yield Assignment(
                resource, str(properties["principalId"]).lower(), role, str(properties["scope"])
            )


def roles_at(state: EmulatorState, object_id: str, scope: str) -> Iterator[Role]:
    """Iterate over the roles that a principal has at a scope, inherited ones too."""
    for assignment in every(state):
        is_assigned = assignment.principal_id == object_id and within(scope, assignment.scope)
        if is_assigned and (role := roles.find(state, assignment.role_id)):
            yield role


def within(inner: str, outer: str) -> bool:
    """Whether a scope is the other or lies in it."""
    plain = outer.lower().rstrip("/")
    return inner.lower().rstrip("/") == plain or inner.lower().startswith(plain + "/")
