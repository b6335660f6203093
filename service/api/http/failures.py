"""Answer every failure in OpenAI's envelope: {"error": {"message", "type", "param", "code"}}."""

import logging
from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import DataError, DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolExhausted
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from service.api.http import hints, validation
from service.api.http.safe_headers import safe_headers
from service.db.core.db_errors import is_unavailable, takes_no_writes
from service.domain.errors import (
    InvalidApiKey,
    InvalidRequest,
    MethodNotAllowed,
    ServiceError,
    ServiceUnavailable,
    UnknownUrl,
)
from service.pricing.source import PricesUnavailable
from service.storage.store import StorageError

log = logging.getLogger(__name__)
_RETRY_HEADERS = {"retry-after": "5"}  # seconds


def install(app: FastAPI) -> None:
    """Answer every exception that leaves a handler. Async, so that none runs in a thread."""
    for kind, handler in _HANDLERS.items():
        app.add_exception_handler(kind, handler)
    app.add_exception_handler(Exception, _answer_unexpected_error)


def interrupted_answer() -> JSONResponse:
    """Return the answer to a request that shutdown interrupts."""
    message = (
        "The service is shutting down; the outcome of this request is unknown. Retry in a few"
        " seconds."
    )
    return _answer(ServiceUnavailable(message), _RETRY_HEADERS)


async def _answer_service_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ServiceError)
    headers = {} if error.retry is None else {"x-should-retry": str(error.retry).lower()}
    if isinstance(error, InvalidApiKey):
        headers["www-authenticate"] = "Bearer"
    if error.retry_after is not None:
        headers["retry-after"] = str(error.retry_after)
    return _answer(error, headers)


async def _answer_invalid_request(request: Request, error: Exception) -> JSONResponse:
    """Answer with the first fault of the request, by the name of its member."""
    assert isinstance(error, RequestValidationError)
    return await _answer_service_error(request, validation.request_error(request, error))


async def _answer_http_exception(request: Request, error: Exception) -> JSONResponse:
    """Answer FastAPI's own refusals: an unknown URL, a method, or an unreadable body."""
    assert isinstance(error, HTTPException)
    for kind, answer in _HANDLERS.items():  # what JsonRequest raises; FastAPI hides it in a 400
        if isinstance(error.__cause__, kind):
            return await answer(request, error.__cause__)
    prefix = f"{request.method} {request.url.path:.200}"
    if error.status_code == 404:
        return _answer(UnknownUrl(f"{prefix}: no such URL. {hints.hint_for(request)}"))
    if error.status_code == 405:
        allowed = ", ".join(hints.allowed_methods(request))
        return _answer(
            MethodNotAllowed(f"{prefix}: this URL takes {allowed} only."), {"allow": allowed}
        )
    return _answer(InvalidRequest(f"{prefix}: {error.detail}."), status=error.status_code)


async def _answer_unstorable_value(request: Request, error: Exception) -> JSONResponse:
    facts = _request_facts(request) | {"cause": str(error)}
    log.warning("api.value_refused_by_database", extra=facts)
    message = "A value contains a character that cannot be stored, for example NUL. Remove it."
    return _answer(InvalidRequest(message))


async def _answer_disconnect(request: Request, error: Exception) -> JSONResponse:
    """Answer a client that has disconnected; this only keeps the log free of a false alarm."""
    log.info("api.client_left", extra=_request_facts(request))
    return _answer(InvalidRequest("The request body is incomplete."))


async def _answer_unavailable(request: Request, error: Exception) -> JSONResponse:
    log.error("api.dependency_failed", extra=_request_facts(request) | {"cause": str(error)})
    message = "A dependency of the service does not answer. Retry in a few seconds."
    if takes_no_writes(error):
        message = (
            "The service's database is read-only now, so nothing was changed. Retry in a minute;"
            " if it persists, contact the operator of the service."
        )
    return _answer(ServiceUnavailable(message), _RETRY_HEADERS)


async def _answer_database_error(request: Request, error: Exception) -> JSONResponse:
    """Answer errors of PostgreSQL: 503 where the same request may succeed later.

    A server that shuts down or is read-only may raise errors other than OperationalError. An error
    of the driver has no SQLSTATE and would occur again.
    """
    is_retryable = isinstance(error, OperationalError) and bool(
        getattr(error.orig, "sqlstate", None)
    )
    answer = (
        _answer_unavailable if is_retryable or is_unavailable(error) else _answer_unexpected_error
    )
    return await answer(request, error)


async def _answer_unexpected_error(request: Request, error: Exception) -> JSONResponse:
    facts = _request_facts(request)
    log.error("api.failed", extra=facts, exc_info=error)
    message = "Unexpected error. Retry; if it persists, report the x-request-id."
    # This answer bypasses the middleware.
    headers = {"x-request-id": facts["request_id"], **safe_headers(request.scope)}
    return _answer(ServiceError(message), headers)


_HANDLERS: dict[type[Exception], Callable[[Request, Exception], Awaitable[JSONResponse]]] = {
    ServiceError: _answer_service_error,
    RequestValidationError: _answer_invalid_request,
    HTTPException: _answer_http_exception,
    DataError: _answer_unstorable_value,
    ClientDisconnect: _answer_disconnect,
    PoolExhausted: _answer_unavailable,
    StorageError: _answer_unavailable,
    PricesUnavailable: _answer_unavailable,
    DBAPIError: _answer_database_error,
}


def _request_facts(request: Request) -> dict[str, str]:
    """Return the request's path and id; a process without users gives requests no id."""
    name = getattr(request.state, "request_id", "")
    return {"path": request.url.path, "request_id": name}


def _answer(
    error: ServiceError, headers: dict[str, str] | None = None, status: int | None = None
) -> JSONResponse:
    return JSONResponse(error.as_envelope(), status_code=status or error.status, headers=headers)
