"""What every ARM request and answer has in common: headers, refusals, paging."""

import json
import re
import uuid
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from emulator.access import gate
from emulator.access.identity.directory import SUBSCRIPTION
from emulator.arm import lenient_json
from emulator.arm.api_versions import Types
from emulator.core.errors import ArmError, invalid, refuse_unknown
from emulator.fabric import Fabric

GUARDED = ("/subscriptions", "/tenants", "/providers")
OF_THE_EMULATOR = "/_emulator/"  # Azure's own whims, and who can sign in
TOKEN = re.compile(r"[0-9]{1,9}")  # a $skiptoken: how many came before
SLASHES = re.compile(r"//+")
NAMED = re.compile(r"/subscriptions/([^/]+)")
LARGEST_BODY = 4 * 1024 * 1024  # bytes


class AnyCaseRoute(Route):
    """A route that knows no upper and lower case, as ARM's; names keep the case they came in."""

    def __init__(self, verb: str, path: str, endpoint: Callable[..., Any]) -> None:
        super().__init__(path, endpoint, methods=[verb])
        self.path_regex = re.compile(self.path_regex.pattern, re.IGNORECASE)


class FrontDoor:
    """ASGI middleware: ids on every answer; no body too large; what ARM asks of every request."""

    def __init__(self, app: ASGIApp, *, fabric: Fabric, types: Types) -> None:
        self._app = app
        self._fabric = fabric
        self._types = types

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = str(uuid.uuid4())
        scope["path"] = SLASHES.sub("/", scope["path"])  # as ARM passes over empty segments

        async def send_with_ids(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["x-ms-request-id"] = request_id
                headers["x-ms-correlation-request-id"] = request_id
                headers["Cache-Control"] = "no-cache"
                if exists and message["status"] == 200:  # CheckExistence answers 204 or 404
                    message["status"] = 204
                    del headers["content-length"]
            elif exists:
                message = {**message, "body": b""}
            await send(message)

        request = Request(scope)
        exists = scope["method"] == "HEAD" and scope["path"].lower().startswith(GUARDED)
        try:
            self._admit(request)
            body = gate.watched(self._fabric, scope, _bounded(receive))
            await self._app(scope, body, send_with_ids)
        except ArmError as error:  # handlers' own were answered: this one nothing has been sent for
            await refuse(request, error)(scope, receive, send_with_ids)

    def _admit(self, request: Request) -> None:
        if int(request.headers.get("content-length") or 0) > LARGEST_BODY:
            raise _too_large()
        path = request.url.path.lower()
        if path.startswith(OF_THE_EMULATOR):
            _check_near(request)
        if path.startswith(gate.HISTORY):
            gate.admit(self._fabric, request)
        if path.startswith(GUARDED):
            gate.admit(self._fabric, request)
            named = NAMED.match(path)
            if named and named[1] != SUBSCRIPTION:
                message = f"The subscription '{named[1]}' could not be found."
                raise ArmError(404, "SubscriptionNotFound", message)
            self._types.check(request, self._fabric.now())


def fabric_of(request: Request) -> Fabric:
    """Return the fabric behind this application."""
    fabric: Fabric = request.app.state.fabric
    return fabric


def base_url(request: Request) -> str:
    """Return the address that the client used; links in answers begin with it."""
    return f"{request.url.scheme}://{request.url.netloc}"


async def read_json(request: Request, *, lenient: bool = False) -> dict[str, Any]:
    """Return the body as a JSON object, or raise ArmError; ``lenient`` as deployments are."""
    body = await read_value(request, lenient=lenient)
    if not isinstance(body, dict):
        raise _unreadable("An object is expected. Path '', line 1, position 1.")
    return body


async def read_order(request: Request, *members: str) -> dict[str, Any]:
    """Return the body of an admin call; raise ArmError if it has other members."""
    body = await read_json(request)
    refuse_unknown(body, members, "member")
    return body


async def read_value(request: Request, *, lenient: bool = False) -> Any:  # noqa: ANN401 - JSON
    """Return the body as any JSON, or raise ArmError."""
    try:
        text = (await request.body()).decode("utf-8-sig") or "{}"
        body = lenient_json.loads(text) if lenient else json.loads(text, parse_constant=_no_number)
        json.dumps(body, ensure_ascii=False, allow_nan=False).encode()  # else it cannot be answered
    except (ValueError, RecursionError) as error:
        raise _unreadable(str(error)) from None
    return body


def check_conditions(request: Request, *etags: int) -> None:
    """Hold the request to its If-Match and If-None-Match; no etag is no resource."""
    current = f'"{".".join(str(etag) for etag in etags)}"'
    if_match, if_none_match = request.headers.get("if-match"), request.headers.get("if-none-match")
    if (if_match and (not etags or if_match not in ("*", current))) or (
        if_none_match and etags and if_none_match in ("*", current)
    ):
        message = "The condition specified using HTTP conditional header(s) is not met."
        raise ArmError(412, "PreconditionFailed", message)


def page(request: Request, rows: Sequence[dict[str, Any]]) -> Response:
    """One page of a list, with a nextLink when more follow."""
    start = skip_token(request)
    end, rows = start + fabric_of(request).settings.page_size, gate.visible_rows(request, rows)
    body: dict[str, Any] = {"value": list(rows[start:end])}
    if end < len(rows):
        query = dict(request.query_params) | {"$skiptoken": str(end)}
        path = quote(request.url.path)
        body["nextLink"] = f"{base_url(request)}{path}?{urlencode(query, safe='$')}"
    return JSONResponse(body)


def skip_token(request: Request, code: str = "InvalidParameter") -> int:
    """Return how many rows came on earlier pages, or raise ArmError with ``code``."""
    skip = request.query_params.get("$skiptoken", "0")
    if not TOKEN.fullmatch(skip):
        raise invalid(f"The $skiptoken '{skip}' was not issued here.", code)
    return int(skip)


def refuse(request: Request, error: Exception) -> Response:
    """Return an error as ARM answers it."""
    if isinstance(error, HTTPException):
        error = _unknown(request, error.status_code)
    assert isinstance(error, ArmError)
    headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else {}
    if error.status == 413 and "content-length" not in request.headers:
        headers["Connection"] = "close"  # else the rest, which may have no end, would be read
    return JSONResponse(error.body, status_code=error.status, headers=headers)


async def internal_error(request: Request, _error: Exception) -> Response:
    """Answer 500 as Azure does; the server logs the traceback on standard error."""
    error = ArmError(500, "InternalServerError", "Encountered internal server error.")
    return refuse(request, error)


async def client_disconnected(_request: Request, _error: Exception) -> Response:
    """Answer a client that disconnected in the middle of its body."""
    return Response(status_code=400)


def _bounded(receive: Receive) -> Receive:
    """Wrap the body; raise ArmError 413 when it grows too large."""
    size = 0

    async def receive_some() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > LARGEST_BODY:
            raise _too_large()
        return message

    return receive_some


def _check_near(request: Request) -> None:
    """Raise ArmError unless the caller is on this machine, as ARM's need not be."""
    peer = request.client.host if request.client else ""
    if not peer.startswith("127."):
        message = f"Only callers on the emulator's own machine may do this, not {peer}."
        raise ArmError(403, "Forbidden", message)


def _too_large() -> ArmError:
    message = "The request content size exceeds the maximum size of 4 MB."
    return ArmError(413, "RequestContentTooLarge", message)


def _unreadable(why: str) -> ArmError:
    message = f"The request content was invalid and could not be deserialized: '{why}'."
    return invalid(message, "InvalidRequestContent")


def _no_number(token: str) -> float:
    raise ValueError(f"Unexpected value {token}.")


def _unknown(request: Request, status: int) -> ArmError:
    """No route leads there."""
    if status == 405:
        message = (
            f"The requested resource does not support http method '{request.method}'. This "
            "emulator does not offer it."
        )
        return ArmError(405, "MethodNotAllowed", message)
    if (request.url.path.lower() + "/").startswith(OF_THE_EMULATOR):
        paths = {r.path for r in request.app.routes if r.path.startswith(OF_THE_EMULATOR)}
        offered = ", ".join(sorted(paths))
        return ArmError(404, "NotFound", f"There is no {request.url.path}; there is {offered}.")
    if not request.url.path.lower().startswith(GUARDED):
        return ArmError(
            404,
            "MissingSubscription",
            "The request did not have a subscription or a valid tenant level resource provider.",
        )
    return ArmError(404, "NotFound", f"This emulator does not offer {request.url.path}.")
