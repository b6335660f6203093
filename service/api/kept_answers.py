"""A job that is asked for again and again, with nothing new: answered from memory.

Plain ASGI in front of the app: what the app costs without doing anything is most of what such an
answer may cost. Every answer of a job is kept, until something is told of the job or of a key.
"""

import re
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.status import HTTP_400_BAD_REQUEST
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api import waiting
from service.api.deps import bearer
from service.db import keys, versions
from service.db.notices import Listener
from service.domain import tokens
from service.operations.kept import Kept

_JOB = re.compile(r"/v1/fine_tuning/jobs/([^/]+)")
SECONDS = 5.0  # what has no news of its own, as what was spent, is no older than this
MOST, LARGEST = 1024, 64 * 1024  # bytes; most are 10 kB, a long grader of a job is part of its own


@dataclass(frozen=True, kw_only=True)
class _Answer:
    headers: list[tuple[bytes, bytes]]
    version: int
    body: bytes


class KeptAnswers:
    """``GET /v1/fine_tuning/jobs/ID`` and its If-None-Match; all else goes through untouched."""

    def __init__(self, app: ASGIApp, listener: Listener) -> None:
        self._app, self._listener = app, listener
        self._kept = Kept[_Answer](listener, seconds=SECONDS, most=MOST)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """By path, method and headers."""
        found = _JOB.match(scope["path"]) if scope["type"] == "http" else None
        if found is None:
            await self._app(scope, receive, send)
            return
        topic = versions.topic(found[1])
        if scope["method"] != "GET":
            await self._app(scope, receive, self._telling(topic, send))
        elif found.end() < len(scope["path"]) or scope["query_string"]:
            await self._app(scope, receive, send)
        else:
            await self._get(scope, receive, send, topic)

    async def _get(self, scope: Scope, receive: Receive, send: Send, topic: str) -> None:
        headers = Headers(scope=scope)
        if "prefer" in headers:  # it waits for news
            await self._app(scope, receive, send)
            return
        project = headers.get("openai-project", "")  # an operator's key has more than one
        key = (topic, tokens.digest(bearer(headers.get("authorization"))), project)
        answer = self._kept.find(key)
        if answer is None:
            with self._kept.reading(key, topic, keys.TOPIC) as keep:
                answer = await _ask(self._app, scope, receive, send)
                if answer is None:  # an error, which is on its way
                    return
                if len(answer.body) <= LARGEST:
                    keep(answer)
        await _send(answer, headers.get("if-none-match"), send)

    def _telling(self, topic: str, send: Send) -> Send:
        """Whoever changes a job by its path sees that here, also before the notice has come."""

        async def told(message: Message) -> None:
            if (
                message["type"] == "http.response.start"
                and message["status"] < HTTP_400_BAD_REQUEST
            ):
                self._listener.wake(topic)
            await send(message)

        return told


async def _ask(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> _Answer | None:
    """The app's answer; None: it was none to keep, and was sent."""
    began: list[Message] = []
    parts: list[bytes] = []

    async def take(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == 200:
            began.append(message)
        elif began:
            parts.append(message.get("body", b""))
        else:
            await send(message)

    plain = [(k, v) for k, v in scope["headers"] if k != b"if-none-match"]
    await app({**scope, "headers": plain}, receive, take)
    if not began:
        return None
    headers = began[0]["headers"]
    tag = Headers(raw=headers)["etag"]
    return _Answer(headers=headers, version=waiting.tagged(tag)[0], body=b"".join(parts))


async def _send(answer: _Answer, have: str | None, send: Send) -> None:
    """The answer, or that it is the one that the caller has."""
    if have is not None and answer.version in waiting.tagged(have):
        headers = [h for h in answer.headers if h[0] == b"etag"]
        await send({"type": "http.response.start", "status": 304, "headers": headers})
        await send({"type": "http.response.body", "body": b""})
        return
    await send({"type": "http.response.start", "status": 200, "headers": list(answer.headers)})
    await send({"type": "http.response.body", "body": answer.body})
