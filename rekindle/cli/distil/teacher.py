"""Talks to a teacher: any server of OpenAI's chat completions. Repeats what may be repeated.

A request is paid for once it is answered, so one that was answered is never sent again, whatever
the answer is worth. What a server refuses for good is told apart from what it refuses for now.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any, Self

import httpx
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_after_attempt
from tenacity.wait import wait_base, wait_random_exponential

from rekindle.cli.distil.teacher_messages import Ask, Reply
from rekindle.cli.errors import ExitCode, Trouble, Unreachable

Json = dict[str, Any]
TRIES = 6
LARGEST = 16 << 20  # bytes of a reply: the service takes no longer line
KEY = "REKINDLE_TEACHER_KEY"

_LONGEST_PAUSE = 120.0
_FOR_NOW = {408, 409, 425, 429, 500, 502, 503, 504, 529}
_FAILED = 500
_OF_THE_PROMPT = {400, 413, 422}  # a server that takes others may refuse this one
_NO_MONEY = "insufficient_quota"


class Refused(Exception):
    """The teacher will never answer this prompt; it may answer others."""


class Later(Unreachable):
    """Not now; ``after`` is how many seconds the server asks for.

    ``is_about_it``: the server is there, and it may be this very prompt that it fails at.
    """

    def __init__(
        self, message: str, after: float | None = None, *, is_about_it: bool = False
    ) -> None:
        super().__init__(message, "Is the address right, and is it running?", code="teacher_away")
        self.after, self.is_about_it = after, is_about_it


class Teacher:
    """One address and one key; close it when done."""

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
        local = httpx.URL(url).host in ("127.0.0.1", "localhost", "::1")
        limits = httpx.Timeout(timeout, connect=10.0, pool=None)
        self._http = httpx.AsyncClient(
            headers=headers,
            timeout=limits,
            limits=httpx.Limits(max_connections=None),  # who asks has a limit
            trust_env=not local,
        )
        self._more: Json = {"sleep": sleep} if sleep else {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._http.aclose()

    async def reply(self, ask: Ask) -> Reply:
        """The answer; raises Refused, or Trouble that ends everything."""
        retrying = AsyncRetrying(
            stop=stop_after_attempt(TRIES),
            retry=retry_if_exception_type(Later),
            wait=_Wait(),
            reraise=True,
            **self._more,
        )
        found: Reply = await retrying(self._once, ask)
        return found

    async def _once(self, ask: Ask) -> Reply:
        body = {"model": ask.model, "messages": ask.messages} | ask.sampling
        try:
            async with self._http.stream(
                "POST", f"{self._url}/chat/completions", json=body
            ) as answer:
                data = await _read(answer)
        except httpx.TransportError as error:
            said = str(error).strip() or type(error).__name__
            raise Later(f"{self._url} does not answer: {said}") from error
        if answer.is_success:
            return _parsed(data, self._url)
        raise _failure(answer, data, self._url, ask.model)


class _Wait(wait_base):
    """As long as the server asks for, else longer and longer, by chance."""

    _usual = wait_random_exponential(multiplier=1, max=60)

    def __call__(self, retry_state: RetryCallState) -> float:
        error = retry_state.outcome.exception() if retry_state.outcome else None
        asked = error.after if isinstance(error, Later) else None
        return self._usual(retry_state) if asked is None else min(asked, _LONGEST_PAUSE)


async def _read(answer: httpx.Response) -> bytes:
    """The body, or Refused for one without an end."""
    data = bytearray()
    async for piece in answer.aiter_bytes():
        data += piece
        if len(data) > LARGEST:
            raise Refused(f"the reply is over {LARGEST >> 20} MiB")
    return bytes(data)


def _parsed(data: bytes, url: str) -> Reply:
    """A reply without text is one, too: it was paid for."""
    try:
        document = json.loads(data)
        choice = document["choices"][0]
        message = choice["message"]
        text, usage = message.get("content"), document.get("usage") or {}
        return Reply(
            text=text if isinstance(text, str) else "",
            ended=str(choice.get("finish_reason") or ""),
            prompt_tokens=int(usage.get("prompt_tokens") or 0),
            completion_tokens=int(usage.get("completion_tokens") or 0),
        )
    except (ValueError, LookupError, TypeError, AttributeError):
        shown = data[:80].decode(errors="replace")
        why = f"{url} answers with no chat completion: {shown!r}"
        raise Later(why, is_about_it=True) from None


def _failure(answer: httpx.Response, data: bytes, url: str, model: str) -> Exception:
    said, code = _error(data)
    why = f"{url} answers {answer.status_code}" + (f": {said}" if said else "")
    if answer.status_code in (401, 403):
        advice = f"Set {KEY} to a key of the teacher's."
        return Trouble(why, advice, exit_code=ExitCode.NOT_AUTHORISED, code="teacher_key")
    if answer.status_code == 404:
        advice = f"Does the address end in /v1 as it should, and is there a model {model}?"
        return Trouble(why, advice, exit_code=ExitCode.NOT_FOUND, code="no_teacher")
    if code == _NO_MONEY:
        return Trouble(why, "The account has no credit left.", code="teacher_unpaid")
    if answer.status_code in _FOR_NOW:
        after = _seconds(answer.headers.get("retry-after"))
        return Later(why, after, is_about_it=answer.status_code == _FAILED)
    if answer.status_code in _OF_THE_PROMPT:
        return Refused(said or f"the teacher answers {answer.status_code}")
    return Trouble(why, "This is no server of chat completions.", code="teacher_failed")


def _error(data: bytes) -> tuple[str, str]:
    """What the server says, and its code for it; both may be empty."""
    try:
        error = json.loads(data)["error"]
    except (ValueError, LookupError, TypeError):
        return "", ""
    if not isinstance(error, dict):
        return str(error)[:300], ""
    return str(error.get("message") or "")[:300], str(error.get("code") or "")


def _seconds(text: str | None) -> float | None:
    return float(text) if text and text.replace(".", "", 1).isdigit() else None
