"""The OpenAPI document: FastAPI's, adapted for generators of clients."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from functools import cache
from threading import Lock
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse, Response
from fastapi.staticfiles import StaticFiles

from service.api.http.safe_headers import ASSETS

Json = dict[str, Any]
_INLINE = re.compile(rb"<script>(.*?)</script>", re.DOTALL)
_REF = "#/components/schemas/"


def install(app: FastAPI) -> None:
    """Serve the document, and at /docs a page that loads nothing from other hosts."""
    app.mount(ASSETS, StaticFiles(packages=[("fastapi_swagger", "resources")]))
    app.add_api_route("/docs", _page, include_in_schema=False)

    def openapi() -> Json:
        if app.openapi_schema is None:
            app.openapi_schema = describe(app)
        return app.openapi_schema

    @cache
    def document() -> bytes:
        return json.dumps(openapi(), ensure_ascii=False, separators=(",", ":")).encode()

    making = Lock()

    def answer() -> Response:
        """Return the document, encoded once: anyone may request it.

        Encoding takes a second of CPU, so FastAPI calls this in a thread.
        """
        with making:
            body = document()
        return Response(body, media_type="application/json")

    app.add_api_route("/openapi.json", answer, include_in_schema=False)
    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI's documentation shows


async def _page() -> HTMLResponse:
    """Return the page of the document. Paths are relative, because a proxy may change the URL."""
    page = get_swagger_ui_html(
        openapi_url="openapi.json",
        title="Rekindle API",
        swagger_js_url="docs/assets/swagger-ui-bundle.js",
        swagger_css_url="docs/assets/swagger-ui.css",
        swagger_favicon_url="docs/assets/favicon-32x32.png",
    )
    page.headers["content-security-policy"] = _policy(bytes(page.body))
    return page


def _policy(page: bytes) -> str:
    """Return the page's Content-Security-Policy: its own files, and its script by hash."""
    digests = [hashlib.sha256(script).digest() for script in _INLINE.findall(page)]
    scripts = [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests]
    return (
        f"default-src 'none'; script-src 'self' {' '.join(scripts)}; style-src 'self'; "
        "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )


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


def _reached(schemas: Json, parts: Iterator[Json]) -> set[str]:
    """Return the names of all schemas that these parts refer to, directly or not."""
    names: set[str] = set()
    pending = [name for part in parts for name in _references(part)]
    while pending:
        name = pending.pop()
        if name not in names:
            names.add(name)
            pending += _references(schemas[name])
    return names


def _references(node: Any) -> list[str]:  # noqa: ANN401 - whatever JSON holds
    if isinstance(node, dict):
        names = [node["$ref"].removeprefix(_REF)] if "$ref" in node else []
        return names + [name for value in node.values() for name in _references(value)]
    if isinstance(node, list):
        return [name for value in node for name in _references(value)]
    return []
