"""HTTP client of the service: timeouts, retries where safe, and errors as messages."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import httpx
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt
from tenacity.wait import wait_base, wait_exponential

from rekindle.cli.connection import ServiceConnection
from rekindle.cli.errors import CliError, ExitCode, ServiceUnreachable

Json = dict[str, Any]
TRIES = 5
_BUSY = {429, 502, 503, 504}
_TIMEOUT = httpx.Timeout(30.0, connect=5.0, pool=30.0)
_LONGEST_PAUSE = 10.0
_PROJECT = "openai-project"


class ApiClient:
    """HTTP client for one service and one API key; close it after use."""

    def __init__(
        self, connection: ServiceConnection, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.connection = connection
        self._sleep = sleep
        headers = {"authorization": f"Bearer {connection.key}", "user-agent": "rekindle"}
        self.http = httpx.Client(
            base_url=connection.url,
            headers=headers,
            timeout=_TIMEOUT,
            trust_env=not is_loopback(connection.url),
        )
        self.select_project(connection.project)

    def select_project(self, project: str | None) -> None:
        """Act in this project, by id or name, from now on; None selects the key's own project."""
        self.http.headers.pop(_PROJECT, None)
        if project is not None:
            self.http.headers[_PROJECT] = project

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.http.close()

    def get(
        self, path: str, *, response_seconds: float = 0.0, tries: int = TRIES, **query: object
    ) -> Json:
        """Send GET; ``response_seconds`` are added to the timeout, for a long poll."""
        timeout = httpx.Timeout(30.0 + response_seconds, connect=5.0)
        answer = self.send("GET", path, params=_query_params(query), timeout=timeout, tries=tries)
        return _parse_json(answer)

    def post(
        self,
        path: str,
        body: Json | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        response_seconds: float = 0.0,
        tries: int = TRIES,
    ) -> Json:
        """Send POST; pass ``tries=1`` for what must not run twice."""
        timeout = httpx.Timeout(30.0 + response_seconds, connect=5.0)
        options: dict[str, Any] = {"json": body, "headers": headers, "timeout": timeout}
        return _parse_json(self.send("POST", path, tries=tries, **options))

    def patch(self, path: str, body: Json) -> Json:
        """Send PATCH; a repeat is harmless, as the body states absolute values."""
        return _parse_json(self.send("PATCH", path, json=body))

    def delete(self, path: str) -> Json:
        """Send DELETE; a retry after a lost answer reports success."""
        return _parse_json(self.send("DELETE", path))

    def send(self, method: str, path: str, *, tries: int = TRIES, **options: Any) -> httpx.Response:  # noqa: ANN401 - httpx's own
        """Send a request, retrying while the service is unreachable or busy; raise CliError."""
        return self.send_with_retries(lambda: self._send_once(method, path, **options), tries)

    def send_with_retries(
        self,
        call: Callable[[], httpx.Response],
        tries: int = TRIES,
        on_retry: Callable[[RetryCallState], None] | None = None,
    ) -> httpx.Response:
        """Call ``call`` until it succeeds, at most ``tries`` times, and return its response."""
        retrying = Retrying(
            stop=stop_after_attempt(tries),
            retry=retry_if_exception(lambda error: isinstance(error, ServiceUnreachable)),
            wait=_WAIT,
            sleep=self._sleep,
            before_sleep=on_retry,
            reraise=True,
        )
        answer: httpx.Response = retrying(call)
        return answer

    @contextmanager
    def stream_response(self, path: str, headers: Mapping[str, str]) -> Iterator[httpx.Response]:
        """Stream a response body; not retried."""
        with (
            self.translate_errors(),
            self.http.stream("GET", path, headers=dict(headers)) as answer,
        ):
            if answer.is_error:
                answer.read()
            yield require_success(answer)

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Raise network failures as CliError."""
        try:
            yield
        except httpx.InvalidURL as error:
            raise CliError(
                f"{self.connection.url} is not a valid address: {error}", exit_code=ExitCode.USAGE
            ) from error
        except httpx.UnsupportedProtocol as error:
            raise CliError(
                f"{self.connection.url} is not an HTTP address.",
                "Begin the address with http:// or https://.",
                exit_code=ExitCode.USAGE,
            ) from error
        except httpx.TransportError as error:
            raise self._unreachable_error(error) from error

    def _send_once(self, method: str, path: str, **options: Any) -> httpx.Response:  # noqa: ANN401
        with self.translate_errors():
            return require_success(self.http.request(method, path, **options))

    def _unreachable_error(self, error: httpx.TransportError) -> ServiceUnreachable:
        where = f"{self.connection.url} ({self.connection.source})"
        cause = str(error).strip() or type(error).__name__
        advice = "Check that the service is running and the address is correct: rekindle doctor"
        if self.connection.stack is not None:
            advice = "Check that the local stack is running; start it with: rekindle up"
        return ServiceUnreachable(f"{where} does not answer: {cause}", advice, code="unreachable")


@dataclass(frozen=True)
class RetryAfterWait(wait_base):
    """Wait for the server's Retry-After, at most ``longest`` seconds; without one, ``backoff``."""

    backoff: wait_base
    longest: float

    def __call__(self, retry_state: RetryCallState) -> float:
        error = retry_state.outcome.exception() if retry_state.outcome else None
        seconds: float | None = getattr(error, "retry_after", None)
        return self.backoff(retry_state) if seconds is None else min(seconds, self.longest)


_WAIT = RetryAfterWait(wait_exponential(multiplier=0.25, max=_LONGEST_PAUSE), _LONGEST_PAUSE)


class ServiceBusy(ServiceUnreachable):
    """The service is overloaded or restarting; ``retry_after`` is in seconds."""

    def __init__(self, message: str, code: str, retry_after: float | None) -> None:
        super().__init__(message, "Retry in a few seconds.", code=code)
        self.retry_after = retry_after


def require_success(answer: httpx.Response) -> httpx.Response:
    """Return a successful response; raise the CliError of any other."""
    if answer.is_success or answer.status_code == httpx.codes.NOT_MODIFIED:
        return answer
    error = _error_object(answer)
    message = str(error.get("message") or f"The service answered {answer.status_code}.")
    code = str(error.get("code") or f"http_{answer.status_code}")
    if answer.status_code in _BUSY:
        raise ServiceBusy(message, code, retry_after(answer))
    param = str(error.get("param") or "")
    raise CliError(message, _advice(answer), exit_code=_exit_code(answer), code=code, param=param)


def _exit_code(answer: httpx.Response) -> ExitCode:
    exit_codes = {
        400: ExitCode.USAGE,
        401: ExitCode.NOT_AUTHORISED,
        403: ExitCode.NOT_AUTHORISED,
        404: ExitCode.NOT_FOUND,
        413: ExitCode.USAGE,
        422: ExitCode.USAGE,
    }
    return exit_codes.get(answer.status_code, ExitCode.FAILED)


def _advice(answer: httpx.Response) -> str:
    if answer.is_server_error:
        name = answer.headers.get("x-request-id", "of this time")
        return f"Find the cause in the service's log: search for request {name}."
    remedies = {
        401: "Check --key and REKINDLE_API_KEY; `rekindle doctor` shows which key is used.",
        403: "Use an API key with this permission.",
    }
    return remedies.get(answer.status_code, "")


def _error_object(answer: httpx.Response) -> Mapping[str, object]:
    """Return the error of OpenAI's envelope; empty if a proxy answered instead of the service."""
    try:
        error = answer.json()["error"]
    except (ValueError, KeyError, TypeError):
        return {}
    return error if isinstance(error, dict) else {"message": error}


def _parse_json(answer: httpx.Response) -> Json:
    try:
        parsed = answer.json()
    except json.JSONDecodeError:
        parsed = None
    if not isinstance(parsed, dict):
        raise CliError(
            f"{answer.url} did not return JSON, so it is not a Rekindle service.",
            "Check the address; it must end in /v1.",
        )
    return parsed


def _query_params(query: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in query.items() if value is not None}


def retry_after(answer: httpx.Response) -> float | None:
    """Return the Retry-After header in seconds; None without one or for a date."""
    text = answer.headers.get("retry-after")
    return float(text) if text and text.replace(".", "", 1).isdigit() else None


def is_loopback(url: str) -> bool:
    """Return whether the address is this machine's, which no proxy reaches."""
    return httpx.URL(url).host in ("127.0.0.1", "localhost", "::1")
