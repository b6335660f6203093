"""What it takes to be a resource type: a rule for names, rules for bodies, and what Azure adds."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from emulator.core.catalog import check_location
from emulator.core.errors import invalid, wrong_location
from emulator.core.rules import Rule, check_rules
from emulator.core.state import ResourceRow
from emulator.fabric import Fabric
from emulator.resources.resource_ids import ResourcePath, parse

Json = dict[str, Any]


@dataclass
class Draft:
    """A resource on its way in: its kind refuses it or fills it in."""

    fabric: Fabric
    path: ResourcePath
    body: Json
    old: ResourceRow | None = None

    @property
    def properties(self) -> Json:
        """The properties, to read and to fill in."""
        return section(self.body, "properties", add=True)

    @property
    def sku(self) -> Json:
        """The sku, empty where none is given."""
        return section(self.body, "sku")

    @property
    def name(self) -> str:
        """The name in lower case."""
        return self.path.name.lower()

    @property
    def name_taken(self) -> bool:
        """Whether another resource of this type has the name: some names are unique in Azure."""
        rows = (r for r in self.fabric.state.resources.values() if r.key != self.path.key)
        key = (self.path.type.lower(), self.name)
        return any((row.type.lower(), row.name.lower()) == key for row in rows)

    def need(self, resource_id: object) -> ResourceRow:
        """Return the resource that an id in the body names, or raise ArmError."""
        path = parse(resource_id) if isinstance(resource_id, str) else None
        if path is None:
            raise invalid(
                f"Property id '{resource_id}' at path 'properties' is invalid. Expect fully "
                "qualified resource Id that start with '/subscriptions/{subscriptionId}' or "
                "'/providers/{resourceProviderNamespace}/'.",
                "LinkedInvalidPropertyId",
            )
        if resource := self.fabric.state.resources.get(path.key):
            return resource
        raise invalid(
            f"Resource {resource_id} referenced by resource {self.path.id} was not found. Please "
            "make sure that the referenced resource exists, and that both resources are in the "
            "same region.",
            "InvalidResourceReference",
        )


@dataclass(frozen=True, kw_only=True)
class ResourceKind:
    """One resource type. What ``fill`` refuses no rule can say."""

    type: str  # as Azure writes it
    oldest: str  # api-version
    name: str = r"[A-Za-z0-9][\w.()-]{0,79}"
    bad_name: tuple[str, str] = ("InvalidResourceName", "Resource name {} is invalid.")
    rules: tuple[Rule[Draft], ...] = ()
    secrets: tuple[str, ...] = ()  # properties that are never shown
    defaults: Json = field(default_factory=dict)  # properties where none are given
    fill: Callable[[Draft], None] | None = None
    created: int = 201  # the status that answers the first PUT
    actions: dict[str, Callable[[Fabric, ResourceRow], Json]] = field(default_factory=dict)

    def check_name(self, name: str) -> None:
        """Raise ArmError unless the name will do."""
        if not re.fullmatch(self.name, name):
            code, message = self.bad_name
            raise invalid(message.format(name), code)

    def complete(self, draft: Draft) -> None:
        """Fill a draft in, or raise ArmError; also if a member has the wrong type."""
        if self.type.count("/") == 1:  # what has a parent has its region
            _settle(draft, self.type)
        try:
            check_rules(self.rules, draft)
            for name in self.secrets:
                draft.properties.pop(name, None)
            for name, value in self.defaults.items():
                draft.properties.setdefault(name, value)
            if self.fill:
                self.fill(draft)
        except (AttributeError, KeyError, TypeError) as error:
            # The rules read nothing but the body, and trust its shape.
            text = f"Cannot parse the request: a member is misshapen ({error})."
            raise invalid(text, "InvalidRequestFormat") from None


def section(body: Json, name: str, *, add: bool = False) -> Json:
    """Return a member that must be an object; empty, and with ``add`` kept, if it is missing."""
    value = body.setdefault(name, {}) if add else body.get(name)
    if value is None and not add:
        return {}
    if not isinstance(value, dict):
        raise invalid(f"The member '{name}' must be an object.", "InvalidRequestContent")
    return value


def rows(body: Json, name: str) -> list[Json]:
    """Return a member that must be a list of objects; empty if it is missing."""
    value = body.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise invalid(f"'{name}' must be an array of objects.", "InvalidRequestContent")
    return value


def _settle(draft: Draft, type_: str) -> None:
    """Normalize the location of a draft; raise ArmError if it has none or another than before."""
    old = draft.old.location if draft.old else ""
    location = check_location(draft.body.get("location") or old, type_)
    if old and old != location:
        raise wrong_location(draft.path.name, old, draft.path.group, location)
    draft.body["location"] = location
