"""Check of every answer of the service against its OpenAPI document."""

import json
import re
from functools import cache
from typing import Any

import jsonschema_rs
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.app import make_routes

Json = dict[str, Any]
_INTERNAL = ("/internal/", "/docs", "/metrics", "/openapi.json")


@cache
def document() -> Json:
    """Return the OpenAPI document of this checkout."""
    return make_routes().openapi()


class Documented:
    """ASGI wrapper that replaces each undocumented answer by a 599 that names the difference."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the app's own
        return getattr(self._app, name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(_INTERNAL):
            await self._app(scope, receive, send)
            return
        messages: list[Message] = []

        async def check(message: Message) -> None:
            if message["type"] == "http.response.start" or messages:
                messages.append(message)
            if messages and (scope["method"] == "HEAD" or not _is_json(messages[0])):
                await _forward(messages, send)
            elif (
                messages
                and message["type"] == "http.response.body"
                and not message.get("more_body")
            ):
                if fault := _fault(scope, messages):
                    messages[:] = _undocumented(fault)
                await _forward(messages, send)
            elif not messages:
                await send(message)

        await self._app(scope, receive, check)


def _is_json(start: Message) -> bool:
    headers = {name.lower(): value for name, value in start["headers"]}
    return b"application/json" in headers.get(b"content-type", b"")


async def _forward(messages: list[Message], send: Send) -> None:
    for message in messages:
        await send(message)
    messages.clear()


def _fault(scope: Scope, messages: list[Message]) -> str:
    status = str(messages[0]["status"])
    body = b"".join(message.get("body", b"") for message in messages[1:])
    template = _template(scope["path"])
    if template is None:
        return "" if status in ("404", "405") else f"{scope['path']} is in no document"
    if (validator := _validator(template, scope["method"].lower(), status)) is None:
        return f"{scope['method']} {template}: {status} is not documented"
    error = next(iter(validator.iter_errors(json.loads(body))), None)
    if error is None:
        return ""
    return f"{scope['method']} {template} {status}: {error.message} at {error.instance_path}"


def _undocumented(fault: str) -> list[Message]:
    start = {"type": "http.response.start", "status": 599, "headers": []}
    return [start, {"type": "http.response.body", "body": f"undocumented: {fault}".encode()}]


@cache
def _templates() -> list[tuple[re.Pattern[str], str]]:
    """Return the paths of the document as patterns, those without parameters first."""
    paths = sorted(document()["paths"], key=lambda path: path.count("{"))
    return [(re.compile(_pattern(path)), path) for path in paths]


def _pattern(path: str) -> str:
    greedy = path.endswith(("/{name}", "/models/{model}"))
    return re.sub(r"\\\{\w+\\\}", ".+" if greedy else "[^/]+", re.escape(path))


def _template(path: str) -> str | None:
    path = re.sub(r"^/openai(/v1)?/", "/v1/", path).rstrip("/")
    return next((name for pattern, name in _templates() if pattern.fullmatch(path)), None)


@cache
def _validator(template: str, method: str, status: str) -> Any:  # noqa: ANN401 - jsonschema_rs's
    operation = document()["paths"][template].get("get" if method == "head" else method)
    if operation is None:  # a 405: no operation with this method
        operation = next(iter(document()["paths"][template].values()))
    answers = operation["responses"]
    answer = answers.get(status) or (answers["default"] if int(status) >= 400 else None)
    schema = (answer or {}).get("content", {}).get("application/json", {}).get("schema")
    if schema is None:
        return None
    return jsonschema_rs.Draft202012Validator(
        schema | {"components": document()["components"]}, validate_formats=False
    )
