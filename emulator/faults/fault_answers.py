"""Planted faults as a client meets them: ASGI middleware behind the front door."""

import asyncio
import json

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from emulator.arm.throttling import too_many
from emulator.core.state import FaultRow
from emulator.fabric import Fabric
from emulator.faults import planted
from emulator.faults.planted import ANSWERS, FaultTarget

NEVER = ("/_emulator/",)  # planted faults must be removable
LIMITED = {"PUT": "CreateVMScaleSet30Min", "DELETE": "DeleteVMScaleSet30Min"}
ALLOWED = 30  # calls within
WINDOW_SECONDS = 1800.0  # as the answer to a throttled client has it


class Faulty:
    """Answers in the place of the application where a fault says so."""

    def __init__(self, app: ASGIApp, *, fabric: Fabric) -> None:
        self._app = app
        self._fabric = fabric

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the fault that meets the request strike, or pass on."""
        fabric = self._fabric
        if scope["type"] != "http" or not fabric.state.faults or scope["path"].startswith(NEVER):
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        body = await request.body()
        replay = _replaying(body, receive)
        target = _target(fabric, request, body)
        fault = planted.take_fault(fabric.state, ANSWERS, target, fabric.now())
        if fault is None:
            await self._app(scope, replay, send)
            return
        fabric.changed()
        await self._strike(fault, scope, replay, send)

    async def _strike(self, fault: FaultRow, scope: Scope, receive: Receive, send: Send) -> None:
        match fault.kind, fault.when:
            case "throttle", _:
                answer = _throttled(fault, scope["method"], self._fabric.now())
                await answer(scope, receive, send)
            case "error", _:
                await _failed(fault)(scope, receive, send)
            case "drop", when:
                if when == "after":
                    await self._app(scope, receive, _discard)
                await _disconnect(scope, receive)
            case _, "after":
                await self._app(scope, receive, _late(send, fault.delay or 0))
            case _:
                await asyncio.sleep(fault.delay or 0)
                await self._app(scope, receive, send)


def _target(fabric: Fabric, request: Request, body: bytes) -> FaultTarget:
    """Return the request as a target, with the region and size of its scale set."""
    path = request.url.path
    model = _read_json(body) if request.method == "PUT" else {}
    for scale_set in fabric.state.scale_sets.values():
        if f"{path.lower()}/".startswith(f"{scale_set.key}/"):
            model = scale_set.model | model
    sku = model.get("sku")
    return FaultTarget(
        method=request.method,
        path=path,
        region=str(model.get("location", "")),
        vm_size=str(sku.get("name", "")) if isinstance(sku, dict) else "",
    )


def _read_json(body: bytes) -> dict[str, object]:
    try:
        document = json.loads(body or b"{}")
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _replaying(body: bytes, receive: Receive) -> Receive:
    """Return a receiver that repeats the body, then passes on what the client sends."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return first.pop() if first else await receive()

    return receive_again


def _throttled(fault: FaultRow, method: str, now: float) -> Response:
    policy = LIMITED.get(method, "HighCostGet30Min")
    error = too_many(policy, (now - WINDOW_SECONDS, now), ALLOWED, ALLOWED + 1)
    headers = {
        "Retry-After": str(fault.retry_after),
        "x-ms-ratelimit-remaining-resource": f"Microsoft.Compute/{policy};0",
        "x-ms-request-charge": "1",
    }
    return JSONResponse({"error": error}, status_code=429, headers=headers)


def _failed(fault: FaultRow) -> Response:
    if fault.status == 502 and not fault.code:  # from a gateway on the way, not from ARM
        return HTMLResponse("<html><body><h1>502 Bad Gateway</h1></body></html>", status_code=502)
    code = fault.code or {503: "ServiceUnavailable"}.get(fault.status, "InternalServerError")
    message = fault.message or "Encountered internal server error. Please retry the request."
    return JSONResponse({"error": {"code": code, "message": message}}, status_code=fault.status)


async def _discard(_message: Message) -> None:
    """Drop a message of the answer."""


def _late(send: Send, delay: float) -> Send:
    async def send_late(message: Message) -> None:
        if message["type"] == "http.response.start":
            await asyncio.sleep(delay)
        await send(message)

    return send_late


async def _disconnect(scope: Scope, receive: Receive) -> None:
    """Break the connection, as `emulator.__main__` lets us, and wait until that is known."""
    scope["state"]["hang_up"]()
    while (await receive())["type"] != "http.disconnect":
        pass
