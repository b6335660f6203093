"""A template unrolled into steps: one resource each, with its id and what it waits for.

Bodies stay as they were written, for `reference()` has no value before its resource is there.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from emulator.deployments import parameters
from emulator.deployments.expressions import NotYet, TemplateError, evaluate
from emulator.deployments.refusals import invalid_resource, invalid_template
from emulator.deployments.scopes import DeploymentPlace, TemplateScope, join_id

Json = Any
MOST_RESOURCES = 800
CONTROL = {
    *("type", "apiVersion", "name", "dependsOn", "condition", "copy", "resources", "scope"),
    "comments",
}


@dataclass
class Step:
    """One resource to be deployed."""

    id: str
    type: str
    name: str
    version: str
    raw: dict[str, Json]
    waits_for: list[str] = field(default_factory=list)  # ids
    enabled: bool = True  # its condition holds

    @property
    def key(self) -> str:
        """The id in lower case."""
        return self.id.lower()


@dataclass(frozen=True)
class DeploymentPlan:
    """A template that was found to be in order."""

    scope: TemplateScope
    steps: list[Step]
    outputs: dict[str, Json]
    declared: dict[str, Json]  # parameters as the template has them


def plan(template: Json, arguments: Json, place: DeploymentPlace) -> DeploymentPlan:
    """Unroll a template with what is passed to it, or raise ArmError."""
    _check_form(template)
    bare = TemplateScope(place, {}, template.get("variables") or {})
    declared = template.get("parameters") or {}
    values = parameters.resolve(declared, arguments or {}, bare)
    scope = replace(bare, parameters=values)
    steps = list(_steps(template, scope))
    if len(steps) > MOST_RESOURCES:
        raise invalid_template(
            f"The number of template resources limit exceeded. Limit: '{MOST_RESOURCES}' and "
            f"actual: '{len(steps)}'. Please see https://aka.ms/arm-syntax-resources for details."
        )
    _refuse_doubles(steps)
    for step in steps:
        step.waits_for = _waits_for(step, steps, scope)
    _refuse_circles(steps)
    versions = {step.id: step.version for step in steps}
    return DeploymentPlan(
        replace(scope, versions=versions), steps, template.get("outputs") or {}, declared
    )


def body(step: Step) -> dict[str, Json]:
    """Return the body of a step's PUT, with its expressions not yet evaluated."""
    return {name: value for name, value in step.raw.items() if name not in CONTROL}


def _check_form(template: Json) -> None:
    if not isinstance(template, dict):
        raise invalid_template("The template must be an object.")
    for name in ("$schema", "contentVersion", "resources"):
        if name not in template:
            raise invalid_template(f"Required property '{name}' not found in JSON. Path ''.")
    if "deploymenttemplate.json" not in str(template["$schema"]).lower():
        raise invalid_template(
            f"Template schema '{template['$schema']}' is not supported. Supported are schemas of "
            "deploymentTemplate.json."
        )
    for name in ("parameters", "variables", "outputs", "functions"):
        kinds = (list,) if name == "functions" else (dict,)
        if template.get(name) and not isinstance(template[name], kinds):
            raise invalid_template(f"The template property '{name}' has the wrong type.")
    for name, rules in (template.get("outputs") or {}).items():
        is_valid = isinstance(rules, dict) and str(rules.get("type")).lower() in parameters.TYPES
        if not is_valid or "value" not in rules:
            raise invalid_template(f"The template output '{name}' needs a type and a value.")


def _steps(template: Json, scope: TemplateScope) -> Iterator[Step]:
    for row in _rows(template["resources"]):
        yield from _unrolled(row, scope, parent=None)


def _rows(resources: Json) -> list[Json]:
    if not isinstance(resources, list):
        raise invalid_template(
            "The template resources must be an array: the emulator knows no symbolic names."
        )
    return resources


def _unrolled(row: Json, scope: TemplateScope, *, parent: Step | None) -> Iterator[Step]:
    """Iterate over the step of one resource and those nested in it."""
    if not isinstance(row, dict) or not isinstance(row.get("type"), str) or "name" not in row:
        raise invalid_template(f"A template resource needs a type and a name: '{row}'.")
    if "copy" in row or row["type"].lower() == "microsoft.resources/deployments":
        text = "the emulator unrolls no copy and deploys no template in a template."
        raise invalid_resource(str(row["name"]), text)
    step = _step(row, scope, parent)
    yield step
    for inner in _rows(row.get("resources") or []):
        yield from _unrolled(inner, scope, parent=step)


def _step(row: dict[str, Json], scope: TemplateScope, parent: Step | None) -> Step:
    label = str(row["name"])
    name = str(_evaluated(label, row["name"], scope))
    kind = row["type"]
    if parent:
        kind, name = _child_type_and_name(parent, kind, name)
    condition = _evaluated(name, row.get("condition", True), scope)
    version = str(_evaluated(name, row.get("apiVersion", ""), scope))
    if not version:
        raise invalid_resource(name, "The resource property 'apiVersion' is required.")
    types = kind.split("/")[1:]
    if not types or len(types) != len(name.split("/")):
        raise invalid_template(
            f"The template resource '{name}' for type '{kind}' has incorrect segment lengths. A "
            "nested resource type must have identical number of segments as its resource name. A "
            "root resource type must have segment length one greater than its resource name. "
            "Please see https://aka.ms/arm-syntax-resources for usage details."
        )
    return Step(
        id=join_id(_base(name, row, scope), kind, [name]),
        type=kind,
        name=name,
        version=version,
        raw=row,
        enabled=condition in (True, "true", "True") and (parent is None or parent.enabled),
    )


def _child_type_and_name(parent: Step, kind: str, name: str) -> tuple[str, str]:
    """Type and name of a nested resource in full; both may be written in full already."""
    if "/" not in kind or not kind.lower().startswith(parent.type.lower() + "/"):
        kind = f"{parent.type}/{kind}"
    if len(name.split("/")) < len(kind.split("/")) - 1:
        name = f"{parent.name}/{name}"
    return kind, name


def _base(name: str, row: dict[str, Json], scope: TemplateScope) -> str:
    """Return the id that a resource's own segments follow: its `scope`, or the group."""
    scope_id = str(_evaluated(name, row.get("scope") or scope.place.group_id, scope))
    return scope_id.rstrip("/")


def _evaluated(name: str, value: Json, scope: TemplateScope) -> Json:
    try:
        return evaluate(value, scope)
    except TemplateError as error:
        raise invalid_resource(name, str(error)) from None
    except NotYet:
        raise invalid_resource(
            name,
            "The template function 'reference' is not expected at this location. Please see "
            "https://aka.ms/arm-functions for usage details.",
        ) from None


def _refuse_doubles(steps: list[Step]) -> None:
    seen: set[str] = set()
    for step in steps:
        if step.key in seen and step.enabled:
            raise invalid_template(
                f"The resource '{step.id}' is defined multiple times in a template. Please see "
                "https://aka.ms/arm-syntax-resources for usage details."
            )
        if step.enabled:
            seen.add(step.key)


def _waits_for(step: Step, steps: list[Step], scope: TemplateScope) -> list[str]:
    listed = step.raw.get("dependsOn") or []
    if not isinstance(listed, list):
        raise invalid_resource(step.name, "The resource property 'dependsOn' must be an array.")
    keys: list[str] = []
    for entry in listed:
        name = str(_evaluated(step.name, entry, scope))
        same = [candidate.key for candidate in steps if _is_reference_to(name, candidate)]
        if not same:
            raise invalid_template(
                f"The resource '{name}' is not defined in the template. Please see "
                "https://aka.ms/arm-syntax for usage details."
            )
        keys += same
    return keys


def _is_reference_to(name: str, step: Step) -> bool:
    """Whether a dependency names a step: by id, type and name, or name."""
    reference = name.lower()
    inner = [segment for segment in reference.split("/") if segment]
    types = step.type.lower().split("/")
    names = step.name.lower().split("/")
    long = [types[0], *(segment for pair in zip(types[1:], names, strict=True) for segment in pair)]
    forms = (step.key, step.name.lower(), f"{step.type}/{step.name}".lower())
    return reference in forms or inner == long


def _refuse_circles(steps: list[Step]) -> None:
    waiting = {step.key: set(step.waits_for) for step in steps}
    while free := [key for key, needs in waiting.items() if not needs & set(waiting)]:
        for key in free:
            del waiting[key]
    if waiting:
        raise invalid_template(
            f"Circular dependency detected on resource: '{min(waiting)}'. Please see "
            "https://aka.ms/arm-syntax-resources for usage details."
        )
