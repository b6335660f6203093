"""Server-sent events: live streams of a job, its events and its logs.

Each stream ends with ``[DONE]`` when the job or attempt is over. After 15 minutes or at shutdown it
ends without: a client then connects again with ``Last-Event-ID`` and a valid key. OpenAI's client
reads the streams too: data is an object without a member ``error``, and a ping is an event, because
a comment after an id makes that client fail.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractContextManager, aclosing, suppress
from typing import Annotated, Any, Final

from fastapi import Header
from pydantic_core import to_json
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.types import Receive, Scope, Send

from service.api.deps import Parts
from service.api.http import waiting
from service.api.http.rate_limits import WorkKind
from service.api.http.waiting import KnownVersions
from service.api.schemas.events import Event
from service.api.schemas.jobs import Job
from service.db.projects.keys import Caller

PING_SECONDS: Final = 15
PAGE_SIZE: Final = 100  # events read at once
_TERMINAL = ("succeeded", "failed", "cancelled")
DONE: Final = ServerSentEvent(data="[DONE]")
EventStream = AsyncGenerator[ServerSentEvent | bytes, None]  # bytes: events that are encoded


STREAM: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "Server-sent events; `data` is an object with `type` and `data`.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}
LastEventId = Annotated[
    str | None, Header(description="Id of the last server-sent event: go on after it.")
]


class _Stream(EventSourceResponse):
    """A response that holds one of its project's slots while it is sent."""

    slot: AbstractContextManager[None]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events; raise RateLimited before that, where no slot is left."""
        with self.slot:
            await super().__call__(scope, receive, send)


def stream_response(parts: Parts, caller: Caller, source: EventStream) -> EventSourceResponse:
    """Return a response that sends the events and pings until its time limit."""
    stream = _Stream(
        _limit_time(source, parts.stream_lifetime.total_seconds()),
        ping=PING_SECONDS,
        ping_message_factory=lambda: ServerSentEvent(event="ping", data="{}"),
    )
    stream.slot = parts.concurrency.slot(WorkKind.POLL, caller.project_id)
    return stream


async def _limit_time(source: EventStream, seconds: float) -> EventStream:
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    async with aclosing(source):
        with suppress(StopAsyncIteration, TimeoutError):
            while True:
                yield await asyncio.wait_for(anext(source), end - loop.time())


class SharedReads:
    """Reads the next version of a job once for all streams that wait for it."""

    def __init__(self) -> None:
        self._reads: dict[tuple[str, str, int], asyncio.Task[tuple[Job, bytes]]] = {}

    async def read_next(
        self, parts: Parts, project_id: str, job: Job, find: Callable[[], Awaitable[Job]]
    ) -> tuple[Job, bytes]:
        """Return the job and its event after a change, a timeout or the start of a shutdown."""
        key = (project_id, job.id, job.version)
        task = self._reads.get(key)
        if task is None:
            task = asyncio.create_task(_read_next(parts, project_id, job, find))
            self._reads[key] = task
            task.add_done_callback(lambda done: self._forget(key, done))
        return await asyncio.shield(task)

    def _forget(self, key: tuple[str, str, int], task: asyncio.Task[tuple[Job, bytes]]) -> None:
        del self._reads[key]
        if not task.cancelled():
            task.exception()  # each stream that still waits raises it


async def _read_next(
    parts: Parts, project_id: str, job: Job, find: Callable[[], Awaitable[Job]]
) -> tuple[Job, bytes]:
    await waiting.wait_for_change(parts, job.id, project_id, _known_version(job.version))
    current_job = await find()
    return current_job, _encode_job(current_job)


async def stream_job(
    parts: Parts,
    shared: SharedReads,
    project_id: str,
    first: Job,
    find: Callable[[], Awaitable[Job]],
) -> EventStream:
    """Yield the job now and after each change, until it is over."""
    job, encoded = first, _encode_job(first)
    while True:
        yield encoded
        if job.status in _TERMINAL:
            yield DONE
            return
        version = job.version
        while job.version == version:
            if parts.drain.has_begun:
                return
            job, encoded = await shared.read_next(parts, project_id, job, find)


def _encode_job(job: Job) -> bytes:
    return event("job", str(job.version), job.model_dump(mode="json")).encode()


async def stream_events(
    parts: Parts,
    project_id: str,
    job_id: str,
    read: Callable[[str | None], Awaitable[tuple[list[Event], int, bool]]],
    after: str | None,
) -> EventStream:
    """Yield the events after the named one, oldest first, until the job is over."""
    while not parts.drain.has_begun:
        events, version, is_over = await read(after)
        for item in events:
            yield event("event", item.id, item.model_dump(mode="json"))
            after = item.id
        if events:
            continue
        if is_over:
            yield DONE
            return
        await waiting.wait_for_change(parts, job_id, project_id, _known_version(version))


def _known_version(version: int) -> KnownVersions:
    seconds = waiting.MAX_WAIT_SECONDS
    return KnownVersions(versions=frozenset({version}), waits=True, seconds=seconds)


def event(kind: str, name: str, data: Any) -> ServerSentEvent:  # noqa: ANN401 - JSON
    """Return an event of this kind; ``name`` is its id, from which a stream resumes."""
    return ServerSentEvent(event=kind, id=name, data=to_json({"type": kind, "data": data}).decode())
