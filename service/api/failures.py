"""Every failure in OpenAI's envelope: {"error": {"message", "type", "param", "code"}}."""

import logging

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import OperationalError
from starlette.exceptions import HTTPException

from service.domain.errors import ServiceError
from service.pricing.source import PricesUnavailable
from service.storage.store import StorageError

log = logging.getLogger(__name__)


def install(app: FastAPI) -> None:
    """Answer every exception that leaves a handler."""
    app.add_exception_handler(ServiceError, _expected)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(HTTPException, _refused)
    for dependency in (OperationalError, StorageError, PricesUnavailable):
        app.add_exception_handler(dependency, _unavailable)
    app.add_exception_handler(Exception, _unforeseen)


def _expected(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ServiceError)
    headers = {} if error.retry is None else {"x-should-retry": str(error.retry).lower()}
    return _answer(error.status, error.message, error.type, error.code, error.param, headers)


def _malformed(request: Request, error: Exception) -> JSONResponse:
    """The first thing that is wrong with a request, by the name of its member."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(p) for p in first["loc"][1:])
    missing = first["type"] == "missing"
    message = f"{where}: {first['msg']}" if where else str(first["msg"])
    code = "missing_required_parameter" if missing else "invalid_value"
    return _answer(400, message, "invalid_request_error", code, where or None)


def _refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail}. See /docs for what there is."
    code = {404: "unknown_url", 405: "method_not_allowed"}.get(error.status_code, "invalid_value")
    return _answer(error.status_code, message, "invalid_request_error", code)


def _unavailable(request: Request, error: Exception) -> JSONResponse:
    log.error("api.dependency_failed", extra={"path": request.url.path, "cause": str(error)})
    message = "A part that this service needs does not answer. Try again in a few seconds."
    return _answer(
        503, message, "server_error", "service_unavailable", headers={"retry-after": "5"}
    )


def _unforeseen(request: Request, error: Exception) -> JSONResponse:
    log.error("api.failed", extra={"path": request.url.path}, exc_info=error)
    message = "Something broke on our side. Try again; if it stays, report the x-request-id."
    return _answer(500, message, "server_error", "internal_error")


def _answer(
    status: int,
    message: str,
    kind: str,
    code: str,
    param: str | None = None,
    headers: dict[str, str] | None = None,
) -> JSONResponse:
    body = {"error": {"message": message, "type": kind, "param": param, "code": code}}
    return JSONResponse(body, status_code=status, headers=headers)
