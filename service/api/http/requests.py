"""How the app reads requests: paths of OpenAI and of Azure OpenAI, HEAD, and strict JSON."""

import asyncio
import re
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.deps import authenticate, parts_of
from service.api.http.rate_limits import WorkKind
from service.domain import strict_json
from service.domain.errors import (
    InvalidRequest,
    PayloadTooLarge,
    RequestTimedOut,
    UnsupportedMediaType,
)
from service.operations.core import worker_thread

USUAL_BODY = 64 * 1024  # bytes of a JSON body; a route class may have another limit
LONG_BODY = 1024 * 1024
_LONG_BODY_OPERATIONS = {  # graders have sources and templates, uploads up to 10,000 parts
    *("createFineTuningJob", "createFineTuningPlan"),
    *("validateGrader", "runGrader", "completeUpload"),
}
_BODY_SECONDS = 60.0  # for the whole of it
# AzureOpenAI sends /openai/files?api-version=..., clients of its v1 API /openai/v1/files.
_AZURE = re.compile(r"/openai(?:/v1)?(?=/)")


class _HeadAnswered(Exception):
    """The headers of the answer to HEAD were sent."""


class PathMiddleware:
    """Middleware that gives each route one path.

    Drops a trailing slash, turns Azure OpenAI's prefix into ``/v1``, and answers HEAD as GET
    without the body. Plain ASGI, so that bodies stream through untouched.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer by the app."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = _AZURE.sub("/v1", scope["path"], count=1)
        path = path.rstrip("/") or "/"
        if path != scope["path"]:
            scope = {**scope, "path": path, "raw_path": path.encode()}
        if scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        try:
            await self._app({**scope, "method": "GET"}, receive, _headers_only(send))
        except* _HeadAnswered:  # a group, where the body was streamed
            pass


def _headers_only(send: Send) -> Send:
    async def send_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            await send(message)
            return
        await send({"type": "http.response.body", "body": b""})
        raise _HeadAnswered

    return send_headers


def parse_json(body: bytes) -> Any:  # noqa: ANN401 - whatever JSON holds
    """Parse a body; raise InvalidRequest that says what is wrong with it."""
    try:
        return strict_json.loads(body.decode())
    except UnicodeDecodeError:
        raise InvalidRequest("The body is not UTF-8. Send JSON in UTF-8.") from None
    except strict_json.UnstorableText as error:
        param = ".".join(str(p - 1) if isinstance(p, int) else p for p in error.path)
        raise InvalidRequest(f"{error}.", param=f"{param!a}"[1:-1] or None) from None
    except ValueError as error:
        raise InvalidRequest(f"The body is not valid JSON: {error}.") from None


async def read_body(
    request: Request, max_bytes: int, slot: AbstractContextManager[None] | None = None
) -> bytes:
    """Return the whole body, or raise PayloadTooLarge once it is longer than ``max_bytes`` bytes.

    Bytes beyond the usual size are read within ``slot``. FastAPI's own ``max_body_size`` answers
    in plain text, which OpenAI's clients cannot read.
    """
    body = bytearray()
    try:
        with ExitStack() as stack:
            async with asyncio.timeout(_BODY_SECONDS):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > max_bytes:
                        raise _too_large(max_bytes)
                    if slot is not None and len(body) > USUAL_BODY:
                        stack.enter_context(slot)
                        slot = None
    except TimeoutError:
        raise RequestTimedOut(
            f"The body did not arrive within {_BODY_SECONDS:g} seconds. Send it again."
        ) from None
    return bytes(body)


def _too_large(max_bytes: int) -> PayloadTooLarge:
    return PayloadTooLarge(
        f"The body is longer than {max_bytes} bytes, the limit for this URL. Shorten it; upload "
        "training rows as a file: POST /v1/files."
    )


class JsonRequest(Request):
    """A request whose JSON means the same to every program: see ``strict_json``."""

    longest_body = USUAL_BODY

    async def body(self) -> bytes:
        """Return the whole body, read once the sender is authenticated."""
        if not hasattr(self, "_body"):
            caller = await authenticate(self)
            slot = parts_of(self).concurrency.slot(WorkKind.LONG_BODY, caller.project_id)
            self._body = await read_body(self, self.longest_body, slot)
        return self._body

    async def json(self) -> Any:  # noqa: ANN401 - whatever JSON holds
        """Return the parsed body; raise InvalidRequest that says what is wrong with it."""
        if encoding := self.headers.get("content-encoding"):
            raise UnsupportedMediaType(
                f"The body is sent with content-encoding {encoding:.40}. Send plain JSON."
            )
        body = await self.body()
        return (
            await worker_thread.run_in_worker(parse_json, body)
            if len(body) > worker_thread.LARGE_BYTES
            else parse_json(body)
        )


class LongRequest(JsonRequest):
    """A request with a larger body."""

    longest_body = LONG_BODY


class JsonRoute(APIRoute):
    """A route that reads bodies as ``JsonRequest`` does."""

    request_class = JsonRequest

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Wrap FastAPI's handler, as its documentation shows for custom requests."""
        handle = super().get_route_handler()
        kind = LongRequest if self.operation_id in _LONG_BODY_OPERATIONS else self.request_class

        async def handle_json(request: Request) -> Response:
            return await handle(kind(request.scope, request.receive))

        return handle_json
