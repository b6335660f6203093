"""Build the HTTP app."""

import re
from abc import ABC, abstractmethod
from functools import cache
from time import perf_counter
from uuid import uuid4

from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service import tracing
from service.api import document, nodes, web
from service.api.deps import Parts
from service.api.files import files, previews, uploads
from service.api.http import failures
from service.api.http.drain import DrainMiddleware
from service.api.http.requests import PathMiddleware
from service.api.http.safe_headers import safe_headers
from service.api.http.streams import SharedReads
from service.api.jobs import attempts, events, graders, job_lists, jobs, logs
from service.api.jobs.live_lists import LiveLists
from service.api.models import models, tiers
from service.api.money import costs, project_costs, project_savings, reconciliations
from service.api.monitoring import audit, fleet, health, monitoring, system, traces
from service.api.planning import plans, simulations
from service.api.projects import api_keys, projects, sign_in
from service.api.schemas.base import ErrorResponse
from service.instruments import HTTP_REQUEST
from service.operations.projects import keys

_MAX_ID_LENGTH = 128
# FastAPI's own metrics and logs, which nothing here sets up, look for that at every request.
_NO_TELEMETRY = TelemetryConfig(tracing=False, metrics=False, logs=False)
_NOT_TRACED = re.compile(r"/(livez|readyz|metrics|internal/nodes/[^/]+/(heartbeat|directive))")
_USER_MODULES = [
    *[
        files,
        uploads,
        previews,
        job_lists,
        jobs,
        plans,
        graders,
        events,
        attempts,
        costs,
        logs,
        tiers,
        models,
    ],
    *[
        api_keys,
        audit,
        fleet,
        project_costs,
        project_savings,
        projects,
        reconciliations,
        sign_in,
    ],
    *[simulations, system, traces],
]


def make_app(parts: Parts) -> FastAPI:
    """Return the app; the caller opens and closes ``parts``."""
    shared = make_routes()
    app = FastAPI(
        routes=shared.routes,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        telemetry=_telemetry(),
    )
    web.install(app, parts.web)
    _attach_services(app, parts)
    app.state.live_lists, app.state.shared_reads = LiveLists(parts), SharedReads()
    app.add_middleware(RequestMetrics)
    app.add_middleware(PathMiddleware)
    app.add_middleware(DrainMiddleware, drain=parts.drain)
    app.add_middleware(RequestIds)
    return app


@cache
def make_routes() -> FastAPI:
    """Return the app with its routes and its API document, without services behind them."""
    app = FastAPI(
        title="Rekindle",
        version="1",
        summary="Fine-tuning on Azure Spot GPUs, with OpenAI's fine-tuning API.",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        responses={"default": {"model": ErrorResponse, "description": "What went wrong."}},
        telemetry=_NO_TELEMETRY,
    )
    # First: routes are searched in order, and nodes ask most.
    app.router.routes.extend(nodes.ROUTES)
    for module in _USER_MODULES:
        app.include_router(module.router, prefix="/v1")
    app.include_router(health.router)
    app.include_router(monitoring.router)
    document.install(app)
    return app


def make_probes(parts: Parts) -> FastAPI:
    """Return the app of a process without users: liveness, readiness and metrics."""
    app = FastAPI(
        title="Rekindle",
        version="1",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        telemetry=_NO_TELEMETRY,
    )
    app.include_router(health.router)
    app.include_router(monitoring.router)
    _attach_services(app, parts)
    app.add_middleware(DrainMiddleware, drain=parts.drain)
    app.add_middleware(RequestIds)
    return app


def _attach_services(app: FastAPI, parts: Parts) -> None:
    """Attach the services and the error handlers to the app."""
    app.state.parts = parts
    app.state.known_keys = keys.cache(parts.listener)
    failures.install(app)


def _telemetry() -> TelemetryConfig:
    """Trace requests where traces are exported, except heartbeats, of which there are thousands."""
    if not tracing.is_on():
        return _NO_TELEMETRY
    return TelemetryConfig(
        tracing=True,
        tracer_provider=tracing.provider(),
        metrics=False,
        logs=False,
        operation_spans=False,
        exclude=lambda scope: bool(_NOT_TRACED.fullmatch(scope.get("path", ""))),
    )


class RequestMiddleware(ABC):
    """Middleware for HTTP requests; plain ASGI, so that bodies stream through untouched."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle the request; let everything else through."""
        handle = self._handle if scope["type"] == "http" else self._app
        await handle(scope, receive, send)

    @abstractmethod
    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the app for this request."""


class RequestIds(RequestMiddleware):
    """Gives every request an id, the client's own or a new one, in its answer and in the logs.

    Adds the caller's remaining rate limit and the security headers.
    """

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        client_id = Headers(scope=scope).get("x-request-id", "")[:_MAX_ID_LENGTH]
        name = client_id or f"req-{uuid4().hex}"
        state = scope.setdefault("state", {})
        state["request_id"] = name  # failures.py logs it

        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["x-request-id"] = name
                for header, value in safe_headers(scope).items():
                    headers.setdefault(header, value)
                if rate := state.get("rate"):  # deps.py counts requests
                    headers.update(rate.headers())
            await send(message)

        await self._app(scope, receive, send_named)


class RequestMetrics(RequestMiddleware):
    """Measures every request, by operation and class of status."""

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        start, status = perf_counter(), "none"  # for a client that disconnects early

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = f"{message['status'] // 100}xx"
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            HTTP_REQUEST.observe(_operation(scope), status, value=perf_counter() - start)


def _operation(scope: Scope) -> str:
    """Return the route's operation id or its handler's name; "none" where no route matches."""
    name = getattr(scope.get("route"), "operation_id", None)
    return str(name or getattr(scope.get("endpoint"), "__name__", "none"))
