"""Builds the HTTP app from what it is given."""

from collections.abc import Awaitable, Callable
from uuid import uuid4

from fastapi import FastAPI, Request, Response

from service.api import attempts, costs, events, failures, files, health, jobs, logs, nodes
from service.api.deps import Parts

Next = Callable[[Request], Awaitable[Response]]


def make_app(parts: Parts) -> FastAPI:
    """Return the app; the caller owns what is behind ``parts``."""
    app = FastAPI(title="Rekindle", version="1", redoc_url=None)
    app.state.parts = parts
    for module in (files, jobs, events, attempts, costs, logs):
        app.include_router(module.router, prefix="/v1")
    app.include_router(nodes.router, prefix="/internal/nodes")
    app.include_router(health.router)
    failures.install(app)
    app.middleware("http")(_name_request)
    return app


async def _name_request(request: Request, call_next: Next) -> Response:
    """Every answer carries an id that can be found in the logs."""
    response = await call_next(request)
    response.headers["x-request-id"] = request.headers.get("x-request-id") or f"req-{uuid4().hex}"
    return response
