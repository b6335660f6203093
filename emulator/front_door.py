"""What every ARM request and answer has in common: headers, refusals, paging."""

import json
import re
import uuid
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlencode

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from emulator.errors import ArmError, invalid
from emulator.fabric import Fabric
from emulator.identity import check_bearer

GUARDED = ("/subscriptions", "/tenants", "/providers")


class AnyCaseRoute(Route):
    """A route that knows no upper and lower case, as ARM's; names keep the case they came in."""

    def __init__(self, path: str, endpoint: Any, *, methods: Sequence[str] = ("GET",)) -> None:  # noqa: ANN401 - Starlette's own type
        super().__init__(path, endpoint, methods=list(methods))
        self.path_regex = re.compile(self.path_regex.pattern, re.IGNORECASE)


class FrontDoor:
    """ASGI middleware: request ids on every answer; bearer and api-version on ARM's own paths."""

    def __init__(self, app: ASGIApp, *, fabric: Fabric) -> None:
        self._app = app
        self._fabric = fabric

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = str(uuid.uuid4())

        async def send_with_ids(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["x-ms-request-id"] = request_id
                headers["x-ms-correlation-request-id"] = request_id
                headers["Cache-Control"] = "no-cache"
            await send(message)

        refusal = self._refusal(Request(scope))
        await (refusal or self._app)(scope, receive, send_with_ids)

    def _refusal(self, request: Request) -> Response | None:
        if not request.url.path.lower().startswith(GUARDED):
            return None
        try:
            check_bearer(request.headers.get("authorization", ""), self._fabric.now())
            if not request.query_params.get("api-version"):
                raise invalid(
                    "The api-version query parameter (?api-version=) is required for all requests.",
                    "MissingApiVersionParameter",
                )
        except ArmError as error:
            return refuse(request, error)
        return None


def fabric_of(request: Request) -> Fabric:
    """The fabric behind this application."""
    fabric: Fabric = request.app.state.fabric
    return fabric


def base_url(request: Request) -> str:
    """The address that the client used; links in answers begin with it."""
    return f"{request.url.scheme}://{request.url.netloc}"


async def read_json(request: Request) -> dict[str, Any]:
    """The body as a JSON object, or ArmError."""
    try:
        body = json.loads(await request.body() or b"{}")
    except ValueError as error:
        raise invalid(
            f"The request content is not JSON: {error}", "InvalidRequestContent"
        ) from None
    if not isinstance(body, dict):
        raise invalid("The request content must be a JSON object.", "InvalidRequestContent")
    return body


def page(request: Request, rows: Sequence[dict[str, Any]]) -> Response:
    """One page of a list, with a nextLink when more follow."""
    size = fabric_of(request).settings.page_size
    skip = request.query_params.get("$skiptoken", "0")
    if not skip.isdigit():
        raise invalid(f"The $skiptoken '{skip}' was not issued here.")
    end = int(skip) + size
    body: dict[str, Any] = {"value": list(rows[int(skip) : end])}
    if end < len(rows):
        query = dict(request.query_params) | {"$skiptoken": str(end)}
        path = quote(request.url.path)
        body["nextLink"] = f"{base_url(request)}{path}?{urlencode(query, safe='$')}"
    return JSONResponse(body)


def refuse(request: Request, error: Exception) -> Response:
    """An error as ARM answers it."""
    if isinstance(error, HTTPException):
        code = "MethodNotAllowed" if error.status_code == 405 else "NotFound"
        message = f"The emulator has no {request.method} {request.url.path}."
        error = ArmError(error.status_code, code, message)
    assert isinstance(error, ArmError)
    headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else {}
    return JSONResponse(error.body, status_code=error.status, headers=headers)
