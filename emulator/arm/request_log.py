"""The last requests, for assertions: `/_emulator/requests`. No bodies, and no tokens."""

import re
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import islice
from typing import TYPE_CHECKING

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from emulator.core.errors import invalid, refuse_unknown

if TYPE_CHECKING:
    from emulator.fabric import Fabric

MAX_ENTRIES = 1000  # at once
PARAMETERS = ("method", "path", "since", "limit")
VM = re.compile(r"^/vm/([^/]+)")
SECRET = re.compile(r"(?i)\b(sig|token|secret|password|code|key)=[^&]*")


@dataclass(frozen=True, kw_only=True)
class LoggedRequest:
    """One request. ``principal`` is the client id of its token, or the name of the VM."""

    id: int
    at: float  # unix seconds, as time passes in the emulator
    method: str
    path: str
    query: str
    status: int  # 0: the connection broke without an answer
    principal: str
    ms: float


class RequestLog:
    """The newest requests, up to a number; older ones are forgotten."""

    def __init__(self, size: int) -> None:
        self.entries: deque[LoggedRequest] = deque(maxlen=size)
        self._next = 1

    def add(self, make: Callable[[int], LoggedRequest]) -> None:
        """Keep one more, under the next id."""
        self.entries.append(make(self._next))
        self._next += 1


class Logged:
    """ASGI middleware: writes down every request when it is over."""

    def __init__(self, app: ASGIApp, *, fabric: "Fabric") -> None:
        self._app = app
        self._fabric = fabric

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass it on, and look at the answer."""
        if scope["type"] != "http" or _is_excluded(scope["path"]):
            await self._app(scope, receive, send)
            return
        start, at, status = time.perf_counter(), self._fabric.now(), 0
        path, vm_name = self._masked(scope["path"])

        async def send_seen(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_seen)
        finally:
            seconds = time.perf_counter() - start
            self._fabric.requests.add(
                lambda number: LoggedRequest(
                    id=number,
                    at=at,
                    method=scope["method"],
                    path=path,
                    query=SECRET.sub(r"\1=…", scope["query_string"].decode("latin-1")),
                    status=status,
                    principal=str(scope.get("principal") or vm_name),
                    ms=round(seconds * 1000, 3),
                )
            )

    def _masked(self, path: str) -> tuple[str, str]:
        """Return the path without a VM's token, and the name of that VM."""
        named = VM.match(path)
        if not named:
            return path, ""
        owner = self._fabric.by_token(named[1])
        vm_name = owner[0].vm_name(owner[1]) if owner else "a VM that is gone"
        return VM.sub("/vm/…", path), vm_name


async def list_requests(request: Request) -> Response:
    """List the requests that match ?method=, ?path= (a regular expression) and ?since= (an id).

    At most ?limit= of them; while ``nextSince`` is there, ask again with it.
    """
    query = request.query_params
    refuse_unknown(query, PARAMETERS, "parameter")
    fits = _filter(query.get("method", ""), query.get("path", ""), _number(query, "since", 0))
    limit = max(1, min(_number(query, "limit", MAX_ENTRIES), MAX_ENTRIES))
    matches = list(islice(filter(fits, request.app.state.fabric.requests.entries), limit + 1))
    answer: dict[str, object] = {"value": [asdict(entry) for entry in matches[:limit]]}
    if len(matches) > limit:
        answer["nextSince"] = matches[limit - 1].id
    return JSONResponse(answer)


def _is_excluded(path: str) -> bool:
    """Whether a request only reads the log or the page: those would push out the others."""
    return path == "/" or path.startswith("/_emulator/")


def _filter(method: str, path: str, since: int) -> Callable[[LoggedRequest], bool]:
    try:
        pattern = re.compile(path, re.IGNORECASE)
    except re.error as error:
        raise invalid(f"'path' is no regular expression: {error}.") from None

    def fits(entry: LoggedRequest) -> bool:
        same = method.upper() in ("", entry.method)
        return same and entry.id > since and pattern.search(entry.path) is not None

    return fits


def _number(query: QueryParams, name: str, default: int) -> int:
    text = query.get(name, str(default))
    if not (text.isascii() and text.isdigit()):
        raise invalid(f"'{name}' must be a number, not '{text}'.")
    return int(text)
