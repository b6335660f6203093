"""openapi.json from the routes, and the console's table of training methods.

`python -m tests.repository.openapi` writes both (`make docs`).
"""

import json
from typing import Any

from contract.methods import METHODS
from service.api.app import make_routes
from tests.repository.sources import ROOT

PAGE = ROOT / "openapi.json"
CONSOLE = ROOT / "web" / "src" / "api" / "methods.json"
Json = dict[str, Any]


def page() -> str:
    """Return the whole document as indented JSON."""
    return json.dumps(make_routes().openapi(), indent=1, ensure_ascii=False) + "\n"


def methods() -> str:
    """Return the JSON of what the console's forms show of each training method."""
    descriptors = {
        name: {
            "label": method.label,
            "rows": list(method.rows),
            "beta": "beta" in method.options.kind_of_hyperparameters().model_fields,
        }
        for name, method in METHODS.items()
    }
    return json.dumps(descriptors, indent=1) + "\n"


def breaks(before: Json, after: Json) -> list[str]:
    """Return the changes from ``before`` to ``after`` that could break a client."""
    changes = []
    for path, operations in before["paths"].items():
        for method, operation in operations.items():
            now = after["paths"].get(path, {}).get(method)
            endpoint = f"{method.upper()} {path}"
            changes += (
                [f"{endpoint} is gone"] if now is None else _operation(endpoint, operation, now)
            )
    for name, schema in before["components"]["schemas"].items():
        now = after["components"]["schemas"].get(name)
        if now is not None:
            is_request = name.endswith(("Request", "Patch"))
            changes += _schema(name, schema, now, is_request=is_request)
    return changes


def _operation(endpoint: str, before: Json, after: Json) -> list[str]:
    breaks = []
    if before["operationId"] != after["operationId"]:
        breaks.append(f"{endpoint}: its operationId is {after['operationId']}")
    parameters = {p["name"]: p for p in after.get("parameters", [])}
    breaks += [
        f"{endpoint}: parameter {p['name']} is gone"
        for p in before.get("parameters", [])
        if p["name"] not in parameters
    ]
    old_names = {p["name"] for p in before.get("parameters", [])}
    breaks += [
        f"{endpoint}: parameter {name} is new and required"
        for name, p in parameters.items()
        if p.get("required") and name not in old_names
    ]
    breaks += [
        f"{endpoint}: answer {status} is gone"
        for status in before["responses"]
        if status not in after["responses"]
    ]
    return breaks


def _schema(name: str, before: Json, after: Json, *, is_request: bool) -> list[str]:
    members, now = before.get("properties", {}), after.get("properties", {})
    breaks = [f"{name}.{member} is gone" for member in members if member not in now]
    required = set(after.get("required", [])), set(before.get("required", []))
    if is_request:
        breaks += [
            f"{name}.{member} is required now" for member in sorted(required[0] - required[1])
        ]
    else:
        optional = sorted((required[1] - required[0]) & now.keys())
        breaks += [f"{name}.{member} may be left out now" for member in optional]
    for member in members.keys() & now.keys():
        old_kinds, new_kinds = _kinds(members[member]), _kinds(now[member])
        changed = old_kinds - new_kinds if is_request else new_kinds - old_kinds
        if changed:
            verb = "takes no more" if is_request else "may also be"
            breaks.append(f"{name}.{member} {verb} {', '.join(sorted(changed))}")
    return breaks


def _kinds(schema: Json) -> set[str]:
    """Return the possible values of a schema: types, names of schemas, and members of an enum."""
    if "anyOf" in schema:
        return set().union(*map(_kinds, schema["anyOf"]))
    if "$ref" in schema:
        return {schema["$ref"].rpartition("/")[2]}
    if "enum" in schema:
        return set(map(repr, schema["enum"]))
    if "const" in schema:
        return {repr(schema["const"])}
    return {str(schema.get("type", "anything"))}


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    CONSOLE.write_text(methods(), encoding="utf-8")
