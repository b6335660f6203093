"""docs/http-api.md, from the OpenAPI document of the routes."""

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from tests.repository import openapi
from tests.repository.pages.markdown import code, table
from tests.repository.sources import ROOT

PAGE = ROOT / "docs" / "http-api.md"
Json = dict[str, Any]
_HEAD = """\
# Routes of the API

For programs that call the API: every route, its parameters and request members. A running service
shows every response member at `/docs`; `openapi.json` in the repository is the same document.
[The API](api.md) explains clients, uploads, waiting and errors.

Generated from the routes by `make docs`; do not edit.
"""
_COMMON = ("openai-project",)


def page() -> str:
    """Return the whole page."""
    document = json.loads(openapi.page())
    by_tag: defaultdict[str, list[str]] = defaultdict(list)
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            tag = (operation.get("tags") or ["Health"])[0]
            by_tag[tag] += ["", *_operation(method.upper(), path, operation)]
    lines = [_HEAD.rstrip("\n")]
    for tag, of_tag in by_tag.items():
        lines += ["", f"## {tag}", *of_tag]
    lines += ["", "## Request bodies", *_bodies(document["components"]["schemas"])]
    return "\n".join(lines) + "\n"


def _operation(method: str, path: str, operation: Json) -> Iterator[str]:
    yield from (f"### {method} {path}", "")
    yield from _text(operation.get("description") or operation.get("summary", ""))
    body, answer = _schema(operation.get("requestBody")), _schema(_answer(operation))
    sent = f"Request: {_linked(body)}. " if body else ""
    if sent or answer:
        yield from ("", sent + (f"Response: {code(answer)}." if answer else ""))
    parameters = [p for p in operation.get("parameters", []) if p["name"] not in _COMMON]
    rows = [
        (code(p["name"]), p["in"], _type(p["schema"]), _text_line(p.get("description", "")))
        for p in parameters
        if p["in"] != "path"
    ]
    if rows:
        yield from ("", *table(("parameter", "in", "type", "meaning"), rows))


def _bodies(schemas: Json) -> Iterator[str]:
    for name, schema in schemas.items():
        if name.endswith(("Request", "Patch")) and schema.get("properties"):
            required = schema.get("required", [])
            rows = [
                (
                    code(member),
                    _type(of),
                    "yes" if member in required else "",
                    _text_line(_description(of)),
                )
                for member, of in schema["properties"].items()
            ]
            yield from ("", f"### {name}", "")
            yield from table(("member", "type", "required", "meaning"), rows)


def _description(schema: Json) -> str:
    return str(schema.get("description", ""))


def _answer(operation: Json) -> Json | None:
    answers = operation.get("responses", {})
    return next((a for status, a in answers.items() if status.startswith("2")), None)


def _schema(content: Json | None) -> str:
    for kind, media_type in (content or {}).get("content", {}).items():
        schema = media_type.get("schema", {})
        name = _type(schema) if kind == "application/json" else kind
        return "" if name == "any" else name
    return ""


def _linked(name: str) -> str:
    linked = f"[`{name}`](#{name.lower()})"
    return linked if name.endswith(("Request", "Patch")) else code(name)


def _type(schema: Json) -> str:
    if "$ref" in schema:
        return str(schema["$ref"].rsplit("/", 1)[-1])
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return code(str(schema["const"]))
    for many in ("anyOf", "oneOf", "allOf"):
        if many in schema:
            kinds = dict.fromkeys(
                _type(variant) for variant in schema[many] if variant.get("type") != "null"
            )
            return " or ".join(kinds)
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return str(schema.get("type", "any"))


def _text(description: str) -> list[str]:
    return description.replace("``", "`").strip().splitlines()


def _text_line(description: str) -> str:
    return description.replace("``", "`")
