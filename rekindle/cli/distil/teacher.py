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
LARGEST = 16 << 20  # bytes of a reply; the service accepts no longer line
KEY = "REKINDLE_TEACHER_KEY"

_WAIT = RetryAfterWait(wait_random_exponential(multiplier=1, max=60), longest=120.0)
_FOR_NOW = {408, 409, 425, 429, 500, 502, 503, 504, 529}
_FAILED = 500
_OF_THE_PROMPT = {400, 413, 422}  # these may concern this prompt only
_NO_MONEY = "insufficient_quota"


class PromptRefused(Exception):
    """The teacher refuses this prompt permanently; others may succeed."""


class TeacherBusy(ServiceUnreachable):
    """A temporary failure; ``retry_after`` is the server's Retry-After in seconds.

    ``is_about_it``: the server answers, and may fail at this prompt only.
    """

    def __init__(
        self, message: str, retry_after: float | None = None, *, is_about_it: bool = False
    ) -> None:
        super().__init__(
            message, "Check the address and that the server is running.", code="teacher_away"
        )
        self.retry_after, self.is_about_it = retry_after, is_about_it


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
        self._more: Json = {"sleep": sleep} if sleep else {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._http.aclose()

    async def reply(self, ask: TeacherRequest) -> TeacherReply:
        """Return the answer; raise PromptRefused, or CliError that ends the run."""
        retrying = AsyncRetrying(
            stop=stop_after_attempt(TRIES),
            retry=retry_if_exception_type(TeacherBusy),
            wait=_WAIT,
            reraise=True,
            **self._more,
        )
        found: TeacherReply = await retrying(self._once, ask)
        return found

    async def _once(self, ask: TeacherRequest) -> TeacherReply:
        body = {"model": ask.model, "messages": ask.messages} | ask.sampling
        try:
            async with self._http.stream(
                "POST", f"{self._url}/chat/completions", json=body
            ) as answer:
                data = await _read(answer)
        except httpx.TransportError as error:
            said = str(error).strip() or type(error).__name__
            raise TeacherBusy(f"{self._url} does not answer: {said}") from error
        if answer.is_success:
            return _parsed(data, self._url)
        raise _failure(answer, data, self._url, ask.model)


async def _read(answer: httpx.Response) -> bytes:
    """Return the body; raise PromptRefused if it is too large."""
    data = bytearray()
    async for piece in answer.aiter_bytes():
        data += piece
        if len(data) > LARGEST:
            raise PromptRefused(f"the reply is over {LARGEST >> 20} MiB")
    return bytes(data)


def _parsed(data: bytes, url: str) -> TeacherReply:
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
        shown = data[:80].decode(errors="replace")
        why = f"{url} did not return a chat completion: {shown!r}"
        raise TeacherBusy(why, is_about_it=True) from None


def _failure(answer: httpx.Response, data: bytes, url: str, model: str) -> Exception:
    said, code = _error(data)
    why = f"{url} answered {answer.status_code}" + (f": {said}" if said else "")
    if answer.status_code in (401, 403):
        advice = f"Set {KEY} to the teacher's API key."
        return CliError(why, advice, exit_code=ExitCode.NOT_AUTHORISED, code="teacher_key")
    if answer.status_code == 404:
        advice = f"Check that the address ends in /v1 and that the model {model} exists."
        return CliError(why, advice, exit_code=ExitCode.NOT_FOUND, code="no_teacher")
    if code == _NO_MONEY:
        return CliError(why, "The account has no credit left.", code="teacher_unpaid")
    if answer.status_code in _FOR_NOW:
        return TeacherBusy(why, retry_after(answer), is_about_it=answer.status_code == _FAILED)
    if answer.status_code in _OF_THE_PROMPT:
        return PromptRefused(said or f"the teacher answered {answer.status_code}")
    return CliError(
        why, "Check that the address is a server of chat completions.", code="teacher_failed"
    )


def _error(data: bytes) -> tuple[str, str]:
    """Return the server's error message and code; both may be empty."""
    try:
        error = json.loads(data)["error"]
    except (ValueError, LookupError, TypeError):
        return "", ""
    if not isinstance(error, dict):
        return str(error)[:300], ""
    return str(error.get("message") or "")[:300], str(error.get("code") or "")
