"""Builds the HTTP app from what it is given."""

from uuid import uuid4

from fastapi import FastAPI
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api import (
    api_keys,
    attempts,
    costs,
    events,
    failures,
    files,
    graders,
    health,
    jobs,
    logs,
    models,
    nodes,
    tiers,
)
from service.api.deps import Parts

_LONGEST_ID = 128


def make_app(parts: Parts) -> FastAPI:
    """Return the app; the caller owns what is behind ``parts``."""
    app = FastAPI(title="Rekindle", version="1", redoc_url=None)
    app.state.parts = parts
    for module in (files, jobs, graders, events, attempts, costs, logs, tiers, models, api_keys):
        app.include_router(module.router, prefix="/v1")
    app.include_router(nodes.router, prefix="/internal/nodes")
    app.include_router(health.router)
    failures.install(app)
    app.add_middleware(RequestNames)
    return app


class RequestNames:
    """Every answer carries an id that can be found in the logs: the client's own, or a new one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Plain ASGI, so that bodies stream through untouched."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")[:_LONGEST_ID]
        name = given or f"req-{uuid4().hex}"
        scope.setdefault("state", {})["request_id"] = name  # failures.py logs it

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["x-request-id"] = name
            await send(message)

        await self._app(scope, receive, named)
