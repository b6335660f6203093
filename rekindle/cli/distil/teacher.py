"""Client of a teacher, any server of OpenAI's chat completions, with retries.

An answered request is paid for, so it is never sent again. Permanent refusals are distinguished
from temporary ones.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any, Self

import httpx
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt
from tenacity.wait import wait_random_exponential

from rekindle.cli.api_client import RetryAfterWait, is_loopback, retry_after
from rekindle.cli.distil.teacher_messages import TeacherReply, TeacherRequest
from rekindle.cli.errors import CliError, ExitCode, ServiceUnreachable

Json = dict[str, Any]
TRIES = 6
MAX_REPLY_BYTES = 16 << 20  # bytes of a reply; the service accepts no longer line
KEY = "REKINDLE_TEACHER_KEY"

_WAIT = RetryAfterWait(wait_random_exponential(multiplier=1, max=60), longest=120.0)
_RETRIABLE = {408, 409, 425, 429, 500, 502, 503, 504, 529}
_FAILED = 500
_PROMPT_ERRORS = {400, 413, 422}  # these may concern this prompt only
_QUOTA_EXHAUSTED = "insufficient_quota"


class PromptRefused(Exception):
    """The teacher refuses this prompt permanently; others may succeed."""


class TeacherBusy(ServiceUnreachable):
    """A temporary failure; ``retry_after`` is the server's Retry-After in seconds.

    ``is_prompt_specific``: the server answers, and may fail at this prompt only.
    """

    def __init__(
        self, message: str, retry_after: float | None = None, *, is_prompt_specific: bool = False
    ) -> None:
        super().__init__(
            message, "Check the address and that the server is running.", code="teacher_away"
        )
        self.retry_after, self.is_prompt_specific = retry_after, is_prompt_specific


class Teacher:
    """Client for one address and key; close it after use."""

    def __init__(
        self,
        url: str,
        key: str | None,
        timeout: float,
        sleep: Callable[[float], Awaitable[None]] | None = None,
    ) -> None:
        self._url, headers = url, {"user-agent": "rekindle"}
        if key:
            headers["authorization"] = f"Bearer {key}"
        limits = httpx.Timeout(timeout, connect=10.0, pool=None)
        self._http = httpx.AsyncClient(
            headers=headers,
            timeout=limits,
            limits=httpx.Limits(max_connections=None),  # the pool limits parallel requests
            trust_env=not is_loopback(url),
        )
        self._retry_options: Json = {"sleep": sleep} if sleep else {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._http.aclose()

    async def request_reply(self, request: TeacherRequest) -> TeacherReply:
        """Return the answer; raise PromptRefused, or CliError that ends the run."""
        retrying = AsyncRetrying(
            stop=stop_after_attempt(TRIES),
            retry=retry_if_exception_type(TeacherBusy),
            wait=_WAIT,
            reraise=True,
            **self._retry_options,
        )
        reply: TeacherReply = await retrying(self._send_once, request)
        return reply

    async def _send_once(self, request: TeacherRequest) -> TeacherReply:
        body = {"model": request.model, "messages": request.messages} | request.sampling
        try:
            async with self._http.stream(
                "POST", f"{self._url}/chat/completions", json=body
            ) as answer:
                data = await _read_body(answer)
        except httpx.TransportError as error:
            cause = str(error).strip() or type(error).__name__
            raise TeacherBusy(f"{self._url} does not answer: {cause}") from error
        if answer.is_success:
            return _parse_reply(data, self._url)
        raise _response_error(answer, data, self._url, request.model)


async def _read_body(answer: httpx.Response) -> bytes:
    """Return the body; raise PromptRefused if it is too large."""
    data = bytearray()
    async for piece in answer.aiter_bytes():
        data += piece
        if len(data) > MAX_REPLY_BYTES:
            raise PromptRefused(f"the reply is over {MAX_REPLY_BYTES >> 20} MiB")
    return bytes(data)


def _parse_reply(data: bytes, url: str) -> TeacherReply:
    """Return the reply; one without text counts, as it was paid for."""
    try:
        document = json.loads(data)
        choice = document["choices"][0]
        message = choice["message"]
        text, usage = message.get("content"), document.get("usage") or {}
        return TeacherReply(
            text=text if isinstance(text, str) else "",
            ended=str(choice.get("finish_reason") or ""),
            prompt_tokens=int(usage.get("prompt_tokens") or 0),
            completion_tokens=int(usage.get("completion_tokens") or 0),
        )
    except (ValueError, LookupError, TypeError, AttributeError):
        excerpt = data[:80].decode(errors="replace")
        why = f"{url} did not return a chat completion: {excerpt!r}"
        raise TeacherBusy(why, is_prompt_specific=True) from None


def _response_error(answer: httpx.Response, data: bytes, url: str, model: str) -> Exception:
    message, code = _error_details(data)
    why = f"{url} answered {answer.status_code}" + (f": {message}" if message else "")
    if answer.status_code in (401, 403):
        advice = f"Set {KEY} to the teacher's API key."
        return CliError(why, advice, exit_code=ExitCode.NOT_AUTHORISED, code="teacher_key")
    if answer.status_code == 404:
        advice = f"Check that the address ends in /v1 and that the model {model} exists."
        return CliError(why, advice, exit_code=ExitCode.NOT_FOUND, code="no_teacher")
    if code == _QUOTA_EXHAUSTED:
        return CliError(why, "The account has no credit left.", code="teacher_unpaid")
    if answer.status_code in _RETRIABLE:
        return TeacherBusy(
            why, retry_after(answer), is_prompt_specific=answer.status_code == _FAILED
        )
    if answer.status_code in _PROMPT_ERRORS:
        return PromptRefused(message or f"the teacher answered {answer.status_code}")
    return CliError(
        why, "Check that the address is a server of chat completions.", code="teacher_failed"
    )


def _error_details(data: bytes) -> tuple[str, str]:
    """Return the server's error message and code; both may be empty."""
    try:
        error = json.loads(data)["error"]
    except (ValueError, LookupError, TypeError):
        return "", ""
    if not isinstance(error, dict):
        return str(error)[:300], ""
    return str(error.get("message") or "")[:300], str(error.get("code") or "")
