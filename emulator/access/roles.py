"""Role definitions: the built-in ones that are of use here, and custom ones; what each allows."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from emulator.core.state import EmulatorState, ResourceRow

DEFINITION = "Microsoft.Authorization/roleDefinitions"
OWNER = "8e3af657-a8ff-443c-a75c-2fe8c4bcb635"
LISTS = ("actions", "notActions", "dataActions", "notDataActions")


@dataclass(frozen=True)
class Role:
    """A role definition, built-in or custom."""

    id: str  # the GUID
    name: str
    description: str
    custom: bool = False
    assignable_scopes: tuple[str, ...] = ("/",)
    permissions: list[dict[str, Any]] = field(default_factory=list)

    def allows(self, action: str) -> bool:
        """Whether one of its permissions names the action, and does not take it out again."""
        return any(
            matches(p.get("actions"), action) and not matches(p.get("notActions"), action)
            for p in self.permissions
        )


def matches(patterns: list[str] | None, action: str) -> bool:
    """Whether any of the patterns covers the action; case does not count."""
    return any(_expression(p).fullmatch(action) for p in patterns or ())


def all_roles(state: EmulatorState) -> Iterator[Role]:
    """Iterate over the built-in roles, then the custom ones."""
    yield from built_in().values()
    for resource in state.resources.values():
        if resource.type == DEFINITION:
            yield custom(resource)


def find(state: EmulatorState, definition_id: str) -> Role | None:
    """Return the role whose GUID ends the id, in any form of the id."""
    name = definition_id.rstrip("/").rpartition("/")[2].lower()
    return built_in().get(name) or next((r for r in all_roles(state) if r.id == name), None)


@cache
def built_in() -> dict[str, Role]:
    """Azure's own, by GUID."""
    rows = json.loads((Path(__file__).parent / "roles.json").read_text())
    return {
        row["id"]: Role(
            id=row["id"],
            name=row["name"],
            description=row["description"],
            permissions=[{name: row.get(name, []) for name in LISTS}],
        )
        for row in rows
    }


def custom(resource: ResourceRow) -> Role:
    """Return the custom role that a resource holds."""
    properties = resource.body["properties"]
    return Role(
        id=resource.name.lower(),
        name=properties["roleName"],
        description=properties["description"],
        custom=True,
        assignable_scopes=tuple(properties["assignableScopes"]),
        permissions=properties["permissions"],
    )


@lru_cache(4096)
def _expression(pattern: str) -> re.Pattern[str]:
    # "a/*/read" covers "a/read" as well: Managed Identity Operator is written so.
    parts = [re.escape(part) for part in pattern.replace("/*/", "/\0").split("*")]
    return re.compile(".*".join(parts).replace("\0", "(?:.*/)?"), re.IGNORECASE)
