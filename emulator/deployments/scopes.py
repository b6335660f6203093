"""Template functions that need to know where they are: parameters, ids, other resources."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from emulator.arm.api_versions import NEWEST
from emulator.core.catalog import catalog
from emulator.deployments import functions
from emulator.deployments.expressions import NotYet, TemplateError, evaluate

Json = Any


class Cloud(Protocol):
    """The resources that a deployment can ask about while it runs."""

    def show(self, resource_id: str, version: str) -> dict[str, Json]:
        """Return a resource as ARM shows it, or raise NotYet while it is still to be deployed."""
        ...


@dataclass(frozen=True)
class DeploymentPlace:
    """Where a deployment is."""

    subscription: dict[str, Json]
    group: dict[str, Json]

    @property
    def group_id(self) -> str:
        """The id of the resource group."""
        return str(self.group["id"])


@dataclass(frozen=True)
class TemplateScope:
    """Where the expressions of one template have their meaning."""

    place: DeploymentPlace
    parameters: dict[str, Json]
    variables: dict[str, Json]  # as written
    versions: dict[str, str] = field(default_factory=dict)  # resource id -> api-version
    cloud: Cloud | None = None  # none before the deployment runs
    under_way: tuple[str, ...] = ()  # variables that are being evaluated

    def call(self, name: str, values: list[Json]) -> Json:
        """Return the value of a function."""
        entry = FUNCTIONS.get(name.lower())
        if entry is None:
            return functions.apply(name, values)
        least, most, function = entry
        if not least <= len(values) <= most:
            raise TemplateError(
                f"Unable to evaluate template language function '{name}': function requires "
                f"{least} to {most} argument(s) while {len(values)} were provided. Please see "
                "https://aka.ms/arm-functions for usage details."
            )
        return function(self, *map(str, values))


def _parameters(scope: TemplateScope, name: str) -> Json:
    for key, value in scope.parameters.items():
        if key.lower() == name.lower():
            return value
    raise TemplateError(
        f"The template parameter '{name}' is not found. Please see "
        "https://aka.ms/arm-syntax-parameters for usage details."
    )


def _variables(scope: TemplateScope, name: str) -> Json:
    name = name.lower()
    if name in scope.under_way:
        raise TemplateError(f"The template variable '{name}' refers to itself.")
    for key, value in scope.variables.items():
        if key.lower() == name:
            return evaluate(value, replace(scope, under_way=(*scope.under_way, name)))
    raise TemplateError(
        f"The template variable '{name}' is not found. Please see "
        "https://aka.ms/arm-syntax-variables for usage details."
    )


def _providers(_scope: TemplateScope, _namespace: str, kind: str) -> Json:
    """Return a resource type's api-versions, for which the templates of `az vmss create` ask."""
    regions = [region.display for region in catalog().regions.values()]
    return {"resourceType": kind, "locations": regions, "apiVersions": [NEWEST]}


def join_id(base: str, kind: str, names: Sequence[str]) -> str:
    """Return an id from a scope, a full type, and one name for each segment of the type."""
    namespace, *types = kind.split("/")
    names = [segment for name in names for segment in name.split("/")]
    if len(types) != len(names) or not types:
        raise TemplateError(
            "Unable to evaluate template language function 'resourceId': the type "
            f"'{kind}' requires '{len(types)}' resource name argument(s). Please see "
            "https://aka.ms/arm-resource-functions/#resourceid for usage details."
        )
    steps = [segment for step in zip(types, names, strict=True) for segment in step]
    return "/".join((base, "providers", namespace, *steps))


def _reference(scope: TemplateScope, name: str, version: str = "", full: str = "") -> Json:
    """Return the properties of a resource, or (``full`` is Full) all of it."""
    if scope.cloud is None:
        raise NotYet(name)
    resource_id, declared_version = _resolve(scope, name)
    resource = scope.cloud.show(resource_id, version or declared_version)
    return resource if full.lower() == "full" else resource.get("properties", {})


def _resolve(scope: TemplateScope, reference: str) -> tuple[str, str]:
    """Return the id and api-version that an id or a plain name refers to."""
    for resource_id, version in scope.versions.items():
        short = resource_id.lower().partition("/providers/")[2]
        if reference.lower() in (
            resource_id.lower(),
            short,
            resource_id.lower().rpartition("/")[2],
        ):
            return resource_id, version
    if not reference.startswith("/"):
        raise TemplateError(
            f"The resource '{reference}' is not defined in the template. Please see "
            "https://aka.ms/arm-syntax for usage details."
        )
    return reference, ""


MANY = 100  # arguments
# By name in lower case: the fewest and the most arguments, and the function itself.
FUNCTIONS: dict[str, tuple[int, int, Callable[..., Json]]] = {
    "parameters": (1, 1, _parameters),
    "variables": (1, 1, _variables),
    "resourceid": (1, MANY, lambda s, kind, *names: join_id(s.place.group_id, kind, names)),
    "subscriptionresourceid": (
        *(1, MANY),
        lambda s, kind, *names: join_id(str(s.place.subscription["id"]), kind, names),
    ),
    "reference": (1, 3, _reference),
    "providers": (2, 2, _providers),
    "resourcegroup": (0, 0, lambda scope: scope.place.group),
    "subscription": (0, 0, lambda scope: scope.place.subscription),
}
