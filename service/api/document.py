"""The API document: what FastAPI writes, made fit for generators of clients."""

from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

Json = dict[str, Any]
_REF = "#/components/schemas/"


def install(app: FastAPI) -> None:
    """Have the app serve this document."""

    def openapi() -> Json:
        if app.openapi_schema is None:
            app.openapi_schema = describe(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI's documentation shows


def describe(app: FastAPI) -> Json:
    """Return the document of the app's routes.

    Members of requests have no defaults in it: openapi-typescript would make them required.
    """
    document = get_openapi(
        title=app.title,
        version=app.version,
        summary=app.summary,
        routes=app.routes,
        separate_input_output_schemas=True,
    )
    schemas: Json = document["components"]["schemas"]
    for name in _reached(schemas, _request_bodies(document)):
        for member in schemas[name].get("properties", {}).values():
            member.pop("default", None)
    return document


def _request_bodies(document: Json) -> Iterator[Json]:
    for operations in document["paths"].values():
        for operation in operations.values():
            yield operation.get("requestBody", {})


def _reached(schemas: Json, begin: Iterator[Json]) -> set[str]:
    """Names of all schemas that these parts refer to, directly or not."""
    found: set[str] = set()
    left = [name for part in begin for name in _references(part)]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += _references(schemas[name])
    return found


def _references(part: Any) -> list[str]:  # noqa: ANN401 - whatever JSON holds
    if isinstance(part, dict):
        own = [part["$ref"].removeprefix(_REF)] if "$ref" in part else []
        return own + [name for value in part.values() for name in _references(value)]
    if isinstance(part, list):
        return [name for value in part for name in _references(value)]
    return []
