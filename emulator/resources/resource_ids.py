"""Ids of ARM resources in a resource group: taken apart, and put together."""

from dataclasses import dataclass

from emulator.core.errors import invalid
from emulator.core.state import group_id


@dataclass(frozen=True)
class ResourcePath:
    """What an id names; without a last name, all resources of the type under the parent."""

    subscription: str
    group: str
    namespace: str
    types: tuple[str, ...]
    names: tuple[str, ...]

    @property
    def type(self) -> str:
        """The full type, as it was written."""
        return "/".join((self.namespace, *self.types))

    @property
    def name(self) -> str:
        """The last name."""
        return self.names[-1]

    @property
    def full_name(self) -> str:
        """All names, as templates write them."""
        return "/".join(self.names)

    @property
    def lists(self) -> bool:
        """Whether it names all resources of a type and not one."""
        return len(self.names) < len(self.types)

    @property
    def id(self) -> str:
        """The id; of a list, the id of what it lists, up to the name."""
        steps = [f"{self.types[i]}/{name}" for i, name in enumerate(self.names)]
        steps += self.types[len(self.names) :]
        group = group_id(self.subscription, self.group)
        return "/".join((group, "providers", self.namespace, *steps))

    @property
    def key(self) -> str:
        """The id in lower case."""
        return self.id.lower()

    @property
    def parent(self) -> "ResourcePath | None":
        """The resource that this one is a part of."""
        if len(self.types) == 1:
            return None
        types, names = self.types[:-1], self.names[: len(self.types) - 1]
        return ResourcePath(self.subscription, self.group, self.namespace, types, names)


def below(subscription: str, group: str, path: str) -> ResourcePath:
    """Take apart what follows ``/providers/`` in an id below a resource group."""
    namespace, *steps = path.strip("/").split("/")
    if not steps or not all(steps):
        raise invalid(f"'{path}' names no resource type.", "InvalidResourceType")
    types, names = tuple(steps[::2]), tuple(steps[1::2])
    return ResourcePath(subscription, group, namespace, types, names)


def parse(resource_id: str) -> ResourcePath | None:
    """Take an id apart; None if it is not that of a resource in a resource group."""
    parts = resource_id.strip("/").split("/")
    keywords = [part.lower() for part in parts[:5:2]]
    if len(parts) < 8 or keywords != ["subscriptions", "resourcegroups", "providers"]:
        return None
    # An extension is named by its own part: what follows the last "providers".
    last = len(parts) - 1 - [part.lower() for part in reversed(parts)].index("providers")
    if last != 4 or len(parts) % 2:
        return None
    return below(parts[1], parts[3], "/".join(parts[5:]))
