"""Template functions that need to know where they are: parameters, ids, other resources."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from emulator.arm.api_versions import NEWEST
from emulator.core.catalog import catalog
from emulator.deployments import functions
from emulator.deployments.expressions import NotYet, TemplateError, evaluate

Json = Any
Argument = Callable[[], Json]


class Cloud(Protocol):
    """The resources that a deployment can ask about while it runs."""

    def show(self, resource_id: str, version: str) -> dict[str, Json]:
        """A resource as ARM shows it; NotYet while it is still to be deployed."""
        ...


@dataclass(frozen=True)
class Place:
    """Where a deployment is."""

    subscription: dict[str, Json]
    group: dict[str, Json]

    @property
    def group_id(self) -> str:
        """The id of the resource group."""
        return str(self.group["id"])


@dataclass(frozen=True)
class Scope:
    """Where the expressions of one template have their meaning."""

    place: Place
    parameters: dict[str, Json]
    variables: dict[str, Json]  # as written
    versions: dict[str, str] = field(default_factory=dict)  # resource id -> api-version
    cloud: Cloud | None = None  # none before the deployment runs
    under_way: tuple[str, ...] = ()  # variables that are being evaluated

    def call(self, name: str, arguments: list[Argument]) -> Json:
        """The value of a function."""
        known = FUNCTIONS.get(name.lower())
        if known:
            return known(self, arguments)
        return functions.apply(name, [argument() for argument in arguments])


def _parameters(scope: Scope, arguments: list[Argument]) -> Json:
    _count("parameters", arguments, 1, 1)
    name = str(arguments[0]())
    for known, value in scope.parameters.items():
        if known.lower() == name.lower():
            return value
    raise TemplateError(
        f"The template parameter '{name}' is not found. Please see "
        "https://aka.ms/arm-syntax-parameters for usage details."
    )


def _variables(scope: Scope, arguments: list[Argument]) -> Json:
    _count("variables", arguments, 1, 1)
    name = str(arguments[0]()).lower()
    if name in scope.under_way:
        raise TemplateError(f"The template variable '{name}' refers to itself.")
    for known, value in scope.variables.items():
        if known.lower() == name:
            return evaluate(value, replace(scope, under_way=(*scope.under_way, name)))
    raise TemplateError(
        f"The template variable '{name}' is not found. Please see "
        "https://aka.ms/arm-syntax-variables for usage details."
    )


def _providers(_scope: Scope, arguments: list[Argument]) -> Json:
    """`providers(namespace, type)`, as the templates of `az vmss create` ask: its api-versions."""
    _count("providers", arguments, 2, 2)
    _, kind = (str(argument()) for argument in arguments)
    regions = [region.display for region in catalog().regions.values()]
    return {"resourceType": kind, "locations": regions, "apiVersions": [NEWEST]}


def _resource_id(scope: Scope, arguments: list[Argument]) -> Json:
    """`resourceId(type, name...)`."""
    return _id_below(scope.place.group_id, arguments)


def _subscription_resource_id(scope: Scope, arguments: list[Argument]) -> Json:
    """`subscriptionResourceId(type, name...)`."""
    return _id_below(str(scope.place.subscription["id"]), arguments)


def _id_below(base: str, arguments: list[Argument]) -> str:
    kind, *names = [str(argument()) for argument in arguments] or [""]
    return join_id(base, kind, names)


def join_id(base: str, kind: str, names: list[str]) -> str:
    """An id from a scope, a full type and as many names as the type has steps."""
    namespace, *types = kind.split("/")
    names = [part for name in names for part in name.split("/")]
    if len(types) != len(names) or not types:
        raise TemplateError(
            "Unable to evaluate template language function 'resourceId': the type "
            f"'{kind}' requires '{len(types)}' resource name argument(s). Please see "
            "https://aka.ms/arm-resource-functions/#resourceid for usage details."
        )
    steps = [part for step in zip(types, names, strict=True) for part in step]
    return "/".join((base, "providers", namespace, *steps))


def _reference(scope: Scope, arguments: list[Argument]) -> Json:
    """`reference(name or id, [apiVersion], ['Full'])`."""
    _count("reference", arguments, 1, 3)
    given = [str(argument()) for argument in arguments]
    if scope.cloud is None:
        raise NotYet(given[0])
    resource_id, known = _resolve(scope, given[0])
    version = given[1] if len(given) > 1 and given[1] else known
    shown = scope.cloud.show(resource_id, version)
    return shown if len(given) > 2 and given[2].lower() == "full" else shown.get("properties", {})


def _resolve(scope: Scope, what: str) -> tuple[str, str]:
    """The id and api-version that an id or a plain name stands for."""
    for known, version in scope.versions.items():
        short = known.lower().partition("/providers/")[2]
        if what.lower() in (known.lower(), short, known.lower().rpartition("/")[2]):
            return known, version
    if not what.startswith("/"):
        raise TemplateError(
            f"The resource '{what}' is not defined in the template. Please see "
            "https://aka.ms/arm-syntax for usage details."
        )
    return what, ""


def _count(name: str, arguments: list[Argument], least: int, most: int) -> None:
    if not least <= len(arguments) <= most:
        raise TemplateError(
            f"Unable to evaluate template language function '{name}': function requires "
            f"{least} to {most} argument(s) while {len(arguments)} were provided. Please see "
            "https://aka.ms/arm-functions for usage details."
        )


FUNCTIONS: dict[str, Callable[[Scope, list[Argument]], Json]] = {
    "parameters": _parameters,
    "variables": _variables,
    "resourceid": _resource_id,
    "subscriptionresourceid": _subscription_resource_id,
    "reference": _reference,
    "providers": _providers,
    "resourcegroup": lambda scope, _: scope.place.group,
    "subscription": lambda scope, _: scope.place.subscription,
}
