"""Role assignments as they are kept: who has which role, where."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

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

    @property
    def properties(self) -> dict[str, Any]:
        """What was put, and by whom."""
        told: dict[str, Any] = self.resource.body["properties"]
        return told


def every(state: EmulatorState) -> Iterator[Assignment]:
    """All of them, in the order in which they were made."""
    for resource in state.resources.values():
        if resource.type == ASSIGNMENT:
            yield _assignment(resource)


def roles_at(state: EmulatorState, object_id: str, scope: str) -> Iterator[Role]:
    """Iterate over the roles that a principal has at a scope, inherited ones too."""
    for assignment in every(state):
        held = assignment.principal_id == object_id and within(scope, assignment.scope)
        if held and (role := roles.find(state, assignment.role_id)):
            yield role


def within(inner: str, outer: str) -> bool:
    """Whether a scope is the other or lies in it."""
    plain = outer.lower().rstrip("/")
    return inner.lower().rstrip("/") == plain or inner.lower().startswith(plain + "/")


def _assignment(resource: ResourceRow) -> Assignment:
    told = resource.body["properties"]
    role = str(told["roleDefinitionId"]).rpartition("/")[2].lower()
    return Assignment(resource, str(told["principalId"]).lower(), role, str(told["scope"]))
