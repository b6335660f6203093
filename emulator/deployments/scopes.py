"""Template functions that need to know where they are: parameters, ids, other resources."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from emulator.deployments import functions
from emulator.deployments.expressions import NotYet, TemplateError, evaluate

Json = Any
Argument = Callable[[], Json]
GUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class Cloud(Protocol):
    """The resources that a deployment can ask about while it runs."""

    def show(self, resource_id: str, version: str) -> dict[str, Json]:
        """A resource as ARM shows it; NotYet while it is still to be deployed."""
        ...

    def act(self, resource_id: str, version: str, action: str, body: Json) -> Json:
        """The answer to a POST on a resource; NotYet while it is still to be deployed."""
        ...


@dataclass(frozen=True)
class Place:
    """Where a deployment is."""

    subscription: dict[str, Json]
    group: dict[str, Json]
    tenant: dict[str, Json]
    deployment: dict[str, Json]
    environment: dict[str, Json]

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
    symbols: dict[str, str] = field(default_factory=dict)  # symbolic name -> resource id
    versions: dict[str, str] = field(default_factory=dict)  # resource id -> api-version
    indexes: dict[str, int] = field(default_factory=dict)  # of the loops around; "" is innermost
    cloud: Cloud | None = None  # none before the deployment runs
    under_way: tuple[str, ...] = ()  # variables that are being evaluated
    hidden: frozenset[str] = frozenset()  # parameters that are not to be shown: what-if has them

    def within(self, loop: str, index: int) -> "Scope":
        """The same inside a copy loop."""
        return replace(self, indexes={**self.indexes, loop: index, "": index})

    def call(self, name: str, arguments: list[Argument]) -> Json:
        """The value of a function."""
        known = FUNCTIONS.get(name.lower())
        if known:
            return known(self, arguments)
        if name.lower().startswith("list") and len(arguments) > 0:
            return _list(self, name, [argument() for argument in arguments])
        return functions.apply(name, [argument() for argument in arguments])


def _if(scope: Scope, arguments: list[Argument]) -> Json:
    _count("if", arguments, 3, 3)
    return arguments[1]() if functions.apply("bool", [arguments[0]()]) else arguments[2]()


def _and(scope: Scope, arguments: list[Argument]) -> Json:
    return all(functions.apply("bool", [argument()]) for argument in arguments)


def _or(scope: Scope, arguments: list[Argument]) -> Json:
    return any(functions.apply("bool", [argument()]) for argument in arguments)


def _parameters(scope: Scope, arguments: list[Argument]) -> Json:
    _count("parameters", arguments, 1, 1)
    name = str(arguments[0]())
    for known, value in scope.parameters.items():
        if known.lower() == name.lower():
            if known in scope.hidden:
                raise NotYet(name)
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
            inner = replace(scope, under_way=(*scope.under_way, name), indexes={})
            return expand(value, inner)
    loops = scope.variables.get("copy")
    for loop in loops if isinstance(loops, list) else []:
        if isinstance(loop, dict) and str(loop.get("name")).lower() == name:
            return expand({"copy": [loop]}, replace(scope, indexes={}))[loop["name"]]
    raise TemplateError(
        f"The template variable '{name}' is not found. Please see "
        "https://aka.ms/arm-syntax-variables for usage details."
    )


def _copy_index(scope: Scope, arguments: list[Argument]) -> Json:
    given = [argument() for argument in arguments]
    loop = given.pop(0).lower() if given and isinstance(given[0], str) else ""
    if loop not in scope.indexes:
        raise TemplateError(
            "The template function 'copyIndex' is not expected at this location. The function can "
            "only be used in a resource with copy specified. Please see "
            "https://aka.ms/arm-copy for usage details."
        )
    return scope.indexes[loop] + (given[0] if given else 0)


def _resource_id(scope: Scope, arguments: list[Argument]) -> Json:
    """`resourceId([subscription], [group], type, name...)`."""
    words = [str(argument()) for argument in arguments]
    at = next((n for n, word in enumerate(words) if "/" in word), None)
    if at is None or at > 2:
        raise TemplateError(
            "Unable to evaluate template language function 'resourceId': the type of resource "
            "must be fully qualified, for example 'Microsoft.Network/virtualNetworks'. Please see "
            "https://aka.ms/arm-resource-functions/#resourceid for usage details."
        )
    scopes, kind, names = words[:at], words[at], words[at + 1 :]
    subscription = next(
        (w for w in scopes if GUID.fullmatch(w)), scope.place.subscription["subscriptionId"]
    )
    group = next((w for w in reversed(scopes) if not GUID.fullmatch(w)), scope.place.group["name"])
    return join_id(f"/subscriptions/{subscription}/resourceGroups/{group}", kind, names)


def _subscription_resource_id(scope: Scope, arguments: list[Argument]) -> Json:
    words = [str(argument()) for argument in arguments]
    subscription = scope.place.subscription["subscriptionId"]
    if words and "/" not in words[0]:
        subscription = words.pop(0)
    kind, *names = words or [""]
    return join_id(f"/subscriptions/{subscription}", kind, names)


def _tenant_resource_id(scope: Scope, arguments: list[Argument]) -> Json:
    kind, *names = [str(argument()) for argument in arguments] or [""]
    return join_id("", kind, names)


def _extension_resource_id(scope: Scope, arguments: list[Argument]) -> Json:
    _count("extensionResourceId", arguments, 3, 20)
    base, kind, *names = (str(argument()) for argument in arguments)
    return join_id(base.rstrip("/"), kind, names)


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
    if len(given) > 2 and given[2].lower() == "full":
        return shown | {"resourceId": shown.get("id"), "apiVersion": version}
    return shown.get("properties", {})


def _list(scope: Scope, name: str, given: list[Json]) -> Json:
    """`listKeys(name or id, apiVersion, [body])` and all others of its kind."""
    if scope.cloud is None:
        raise NotYet(str(given[0]))
    resource_id, known = _resolve(scope, str(given[0]))
    version = str(given[1]) if len(given) > 1 else known
    return scope.cloud.act(resource_id, version, name, given[2] if len(given) > 2 else None)


def _resolve(scope: Scope, what: str) -> tuple[str, str]:
    """The id and api-version that a symbolic name, an id or a plain name stands for."""
    found = scope.symbols.get(what, what)
    for known, version in scope.versions.items():
        short = known.lower().partition("/providers/")[2]
        if found.lower() in (known.lower(), short, known.lower().rpartition("/")[2]):
            return known, version
    if not found.startswith("/"):
        raise TemplateError(
            f"The resource '{what}' is not defined in the template. Please see "
            "https://aka.ms/arm-syntax for usage details."
        )
    return found, ""


def expand(value: Json, scope: Scope) -> Json:
    """Evaluate a value, with the property copies in it."""
    if isinstance(value, list):
        return [expand(part, scope) for part in value]
    if not isinstance(value, dict):
        return evaluate(value, scope)
    loops = value.get("copy") if isinstance(value.get("copy"), list) else []
    rest = {k: v for k, v in value.items() if k != "copy" or not isinstance(v, list)}
    result = {evaluate(k, scope): expand(v, scope) for k, v in rest.items()}
    for loop in loops or []:
        if not isinstance(loop, dict):
            raise TemplateError("A copy must be an object.")
        name, count = loop.get("name"), evaluate(loop.get("count"), scope)
        if not isinstance(name, str) or not isinstance(count, int) or not 0 <= count <= 800:
            raise TemplateError("A copy needs a name and a count from 0 to 800.")
        turns = [scope.within(name.lower(), n) for n in range(count)]
        result[name] = [expand(loop.get("input"), turn) for turn in turns]
    return result


def _count(name: str, arguments: list[Argument], least: int, most: int) -> None:
    if not least <= len(arguments) <= most:
        raise TemplateError(
            f"Unable to evaluate template language function '{name}': function requires "
            f"{least} to {most} argument(s) while {len(arguments)} were provided. Please see "
            "https://aka.ms/arm-functions for usage details."
        )


FUNCTIONS: dict[str, Callable[[Scope, list[Argument]], Json]] = {
    "if": _if,
    "and": _and,
    "or": _or,
    "parameters": _parameters,
    "variables": _variables,
    "copyindex": _copy_index,
    "resourceid": _resource_id,
    "subscriptionresourceid": _subscription_resource_id,
    "tenantresourceid": _tenant_resource_id,
    "extensionresourceid": _extension_resource_id,
    "reference": _reference,
    "resourcegroup": lambda scope, _: scope.place.group,
    "subscription": lambda scope, _: scope.place.subscription,
    "tenant": lambda scope, _: scope.place.tenant,
    "deployment": lambda scope, _: scope.place.deployment,
    "environment": lambda scope, _: scope.place.environment,
}
