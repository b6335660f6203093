"""What it takes to be a resource type: a name rule, and a check.

The check refuses what Azure would refuse and fills in what Azure adds.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from emulator.core.errors import ArmError
from emulator.core.state import ResourceRow
from emulator.fabric import Fabric
from emulator.resources.resource_ids import ResourcePath, parse

Json = dict[str, Any]


@dataclass
class Draft:
    """A resource on its way in: ``check`` refuses it or fills it in."""

    fabric: Fabric
    path: ResourcePath
    body: Json
    old: ResourceRow | None = None

    @property
    def properties(self) -> Json:
        """The properties, to read and to fill in."""
        found = self.body.setdefault("properties", {})
        if not isinstance(found, dict):
            raise ArmError(
                400, "InvalidRequestContent", "The member 'properties' must be an object."
            )
        return found

    @property
    def sku(self) -> Json:
        """The sku, empty where none is given."""
        return section(self.body, "sku")

    def refuse(self, code: str, message: str, status: int = 400) -> ArmError:
        """Return an error to raise."""
        return ArmError(status, code, message)

    @property
    def name_taken(self) -> bool:
        """Whether another resource of this type has the name: some names are unique in Azure."""
        mine = (self.path.type.lower(), self.path.name.lower())
        others = (r for r in self.fabric.state.resources.values() if r.key != self.path.key)
        return any((other.type.lower(), other.name.lower()) == mine for other in others)

    def need(self, resource_id: object) -> ResourceRow:
        """Return the resource that an id in the body names, or raise ArmError."""
        path = parse(resource_id) if isinstance(resource_id, str) else None
        if path is None:
            raise self.refuse(
                "LinkedInvalidPropertyId",
                f"Property id '{resource_id}' at path 'properties' is invalid. Expect fully "
                "qualified resource Id that start with '/subscriptions/{subscriptionId}' or "
                "'/providers/{resourceProviderNamespace}/'.",
            )
        if found := self.fabric.state.resources.get(path.key):
            return found
        raise self.refuse(
            "InvalidResourceReference",
            f"Resource {resource_id} referenced by resource {self.path.id} was not found. Please "
            "make sure that the referenced resource exists, and that both resources are in the "
            "same region.",
        )


Action = Callable[[Fabric, ResourceRow], Json]


@dataclass(frozen=True, kw_only=True)
class ResourceKind:
    """One resource type."""

    type: str  # as Azure writes it
    oldest: str  # api-version
    check: Callable[[Draft], None]
    name: str = r"[A-Za-z0-9][\w.()-]{0,79}"
    bad_name: tuple[str, str] = (  # code and words
        "InvalidResourceName",
        "Resource name {} is invalid.",
    )
    created: int = 201  # the status that answers the first PUT
    actions: dict[str, Action] = field(default_factory=dict)  # POST .../name

    @property
    def located(self) -> bool:
        """Whether it has a region of its own: only what has no parent."""
        return self.type.count("/") == 1

    def check_name(self, name: str) -> None:
        """Raise ArmError unless the name will do."""
        if not re.fullmatch(self.name, name):
            code, words = self.bad_name
            raise ArmError(400, code, words.format(name))


def check(kind: ResourceKind, draft: Draft) -> None:
    """Hold a draft to the rules of its kind; ArmError too if a member has the wrong type."""
    try:
        kind.check(draft)
    except (AttributeError, KeyError, TypeError) as error:
        # The checks read nothing but the body, and trust its shape: nobody else can be wrong.
        raise ArmError(
            400,
            "InvalidRequestFormat",
            f"Cannot parse the request: a member is misshapen ({error}).",
        ) from None


def section(body: Json, name: str) -> Json:
    """Return a member that must be an object; empty if it is missing."""
    value = body.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ArmError(400, "InvalidRequestContent", f"The member '{name}' must be an object.")
    return value


def rows(body: Json, name: str) -> list[Json]:
    """Return a member that must be a list of objects; empty if it is missing."""
    value = body.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise ArmError(400, "InvalidRequestContent", f"'{name}' must be an array of objects.")
    return value


def no_check(_draft: Draft) -> None:
    """Whatever is in it will do."""
