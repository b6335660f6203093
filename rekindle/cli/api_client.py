"""Talks HTTP to the service: time-outs, repeats where repeating is harmless, plain words."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import httpx
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt
from tenacity.wait import wait_base

from rekindle.cli.connection import Connection
from rekindle.cli.errors import ExitCode, Trouble, Unreachable

Json = dict[str, Any]
TRIES = 5
_BUSY = {429, 502, 503, 504}
_TIMEOUT = httpx.Timeout(30.0, connect=5.0, pool=30.0)
_LONGEST_PAUSE = 10.0
_PROJECT = "openai-project"


class Client:
    """One service and one key; close it when done."""

    def __init__(self, connection: Connection, sleep: Callable[[float], None] = time.sleep) -> None:
        self.connection = connection
        self._sleep = sleep
        headers = {"authorization": f"Bearer {connection.key}", "user-agent": "rekindle"}
        self.http = httpx.Client(
            base_url=connection.url,
            headers=headers,
            timeout=_TIMEOUT,
            trust_env=not _is_loopback(connection.url),
        )
        self.act_in(connection.project)

    def act_in(self, project: str | None) -> None:
        """From now on in this project, by its id or name; None: the key's own."""
        self.http.headers.pop(_PROJECT, None)
        if project is not None:
            self.http.headers[_PROJECT] = project

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.http.close()

    def get(self, path: str, *, patience: float = 0.0, tries: int = TRIES, **query: object) -> Json:
        """Read something; ``patience`` is how long the service may wait before it answers."""
        timeout = httpx.Timeout(30.0 + patience, connect=5.0)
        answer = self.send("GET", path, params=_given(query), timeout=timeout, tries=tries)
        return _parsed(answer)

    def post(
        self,
        path: str,
        body: Json | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        patience: float = 0.0,
        tries: int = TRIES,
    ) -> Json:
        """Do something. ``tries=1`` for what must not be done twice; ``patience`` as of `get`."""
        timeout = httpx.Timeout(30.0 + patience, connect=5.0)
        more: dict[str, Any] = {"json": body, "headers": headers, "timeout": timeout}
        return _parsed(self.send("POST", path, tries=tries, **more))

    def patch(self, path: str, body: Json) -> Json:
        """Change something: what the body has, as it has it, so that twice is harmless."""
        return _parsed(self.send("PATCH", path, json=body))

    def delete(self, path: str) -> Json:
        """Delete something. Seen as deleted when the first of two tries has done it."""
        return _parsed(self.send("DELETE", path))

    def send(self, method: str, path: str, *, tries: int = TRIES, **more: Any) -> httpx.Response:  # noqa: ANN401 - httpx's own
        """The answer, or Trouble; repeated while the service is away or busy."""
        return self.repeated(lambda: self._once(method, path, **more), tries)

    def repeated(
        self,
        call: Callable[[], httpx.Response],
        tries: int = TRIES,
        before: Callable[[RetryCallState], None] | None = None,
    ) -> httpx.Response:
        """Whatever ``call`` answers in the end."""
        retrying = Retrying(
            stop=stop_after_attempt(tries),
            retry=retry_if_exception(lambda error: isinstance(error, Unreachable)),
            wait=_Wait(),
            sleep=self._sleep,
            before_sleep=before,
            reraise=True,
        )
        answer: httpx.Response = retrying(call)
        return answer

    @contextmanager
    def streamed(self, path: str, headers: Mapping[str, str]) -> Iterator[httpx.Response]:
        """An answer whose body is read as it comes; not repeated."""
        with (
            self.translated(),
            self.http.stream("GET", path, headers=dict(headers)) as answer,
        ):
            if answer.is_error:
                answer.read()
            yield checked(answer)

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Failures of the network in our own words."""
        try:
            yield
        except httpx.InvalidURL as error:
            raise Trouble(
                f"{self.connection.url} is no address: {error}", exit_code=ExitCode.USAGE
            ) from error
        except httpx.UnsupportedProtocol as error:
            raise Trouble(
                f"{self.connection.url} is no address of a web service.",
                "Write it with http:// or https:// before it.",
                exit_code=ExitCode.USAGE,
            ) from error
        except httpx.TransportError as error:
            raise self._away(error) from error

    def _once(self, method: str, path: str, **more: Any) -> httpx.Response:  # noqa: ANN401
        with self.translated():
            return checked(self.http.request(method, path, **more))

    def _away(self, error: httpx.TransportError) -> Unreachable:
        where = f"{self.connection.url} ({self.connection.source})"
        said = str(error).strip() or type(error).__name__
        advice = "Is it running, and is the address right? rekindle doctor looks closer."
        if self.connection.stack is not None:
            advice = "Is the local stack running? Start it with: rekindle up"
        return Unreachable(f"{where} does not answer: {said}", advice, code="unreachable")


@dataclass(frozen=True)
class _Wait(wait_base):
    """As long as the service asks for, else a quarter of a second and then twice the last."""

    def __call__(self, retry_state: RetryCallState) -> float:
        error = retry_state.outcome.exception() if retry_state.outcome else None
        asked = getattr(error, "retry_after", None)
        wait = asked if asked is not None else 0.25 * 2 ** (retry_state.attempt_number - 1)
        return min(float(wait), _LONGEST_PAUSE)


class Busy(Unreachable):
    """The service answers, but not now."""

    def __init__(self, message: str, code: str, retry_after: float | None) -> None:
        super().__init__(message, "Try again in a moment.", code=code)
        self.retry_after = retry_after


def checked(answer: httpx.Response) -> httpx.Response:
    """The answer if it is one of success, or the Trouble that it stands for."""
    if answer.is_success or answer.status_code == httpx.codes.NOT_MODIFIED:
        return answer
    error = _error(answer)
    message = str(error.get("message") or f"The service answered {answer.status_code}.")
    code = str(error.get("code") or f"http_{answer.status_code}")
    if answer.status_code in _BUSY:
        raise Busy(message, code, _seconds(answer.headers.get("retry-after")))
    param = str(error.get("param") or "")
    raise Trouble(message, _advice(answer), exit_code=_exit_code(answer), code=code, param=param)


def _exit_code(answer: httpx.Response) -> ExitCode:
    known = {
        400: ExitCode.USAGE,
        401: ExitCode.NOT_AUTHORISED,
        403: ExitCode.NOT_AUTHORISED,
        404: ExitCode.NOT_FOUND,
        413: ExitCode.USAGE,
        422: ExitCode.USAGE,
    }
    return known.get(answer.status_code, ExitCode.FAILED)


def _advice(answer: httpx.Response) -> str:
    if answer.is_server_error:
        name = answer.headers.get("x-request-id", "of this time")
        return f"The service's log says why: look for the request {name}."
    known = {
        401: "Check --key and REKINDLE_API_KEY. rekindle doctor says which key is used.",
        403: "Use a key that may do this.",
    }
    return known.get(answer.status_code, "")


def _error(answer: httpx.Response) -> Mapping[str, object]:
    """OpenAI's envelope, or nothing when a proxy answered in its place."""
    try:
        error = answer.json()["error"]
    except (ValueError, KeyError, TypeError):
        return {}
    return error if isinstance(error, dict) else {"message": error}


def _parsed(answer: httpx.Response) -> Json:
    try:
        parsed = answer.json()
    except json.JSONDecodeError:
        parsed = None
    if not isinstance(parsed, dict):
        raise Trouble(
            f"{answer.url} does not answer in JSON: this is not Rekindle's service.",
            "Check the address: it ends in /v1.",
        )
    return parsed


def _given(query: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in query.items() if value is not None}


def _seconds(text: str | None) -> float | None:
    return float(text) if text and text.replace(".", "", 1).isdigit() else None


def _is_loopback(url: str) -> bool:
    return httpx.URL(url).host in ("127.0.0.1", "localhost", "::1")
