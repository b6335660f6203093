"""Shutdown of the HTTP API: long polls end at once, late requests with a 503.

The sockets are closed by then, so another process answers a retry.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.http import failures
from service.db.core.notify import Listener

_TOPIC = "drain"  # of this process alone: no notice is sent
_INTERRUPT_SECONDS = 2.0  # to roll back and to answer


class Drain:
    """The shutdown of one process: its unanswered requests, and whether it has begun."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self.has_begun = False
        self._pending_tasks: set[asyncio.Task[Any]] = set()
        self._interrupted_tasks: set[asyncio.Task[Any]] = set()

    @contextmanager
    def polling(self, topic: str) -> Iterator[asyncio.Event]:
        """Yield the topic's event, which is also set once this drain has begun."""
        event = self._listener.subscribe(topic, _TOPIC)
        if self.has_begun:
            event.set()
        try:
            yield event
        finally:
            self._listener.unsubscribe(event, topic, _TOPIC)

    def begin_drain(self) -> None:
        """End long polls now, as if their time had passed."""
        self.has_begun = True
        self._listener.wake(_TOPIC)

    async def interrupt_requests(self) -> int:
        """Answer the remaining requests with 503; return how many there were."""
        self._interrupted_tasks |= self._pending_tasks
        for task in self._interrupted_tasks:
            task.cancel()
        if self._interrupted_tasks:
            await asyncio.wait(self._interrupted_tasks, timeout=_INTERRUPT_SECONDS)
        return len(self._interrupted_tasks)

    async def answer(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the app until it has answered or the time is up."""
        task = asyncio.current_task()
        assert task is not None, "uvicorn makes one for each request"

        async def send_answer(message: Message) -> None:
            self._pending_tasks.discard(task)
            await send(message)

        self._pending_tasks.add(task)
        try:
            await app(scope, receive, send_answer)
        except asyncio.CancelledError:
            if task not in self._interrupted_tasks or task not in self._pending_tasks:
                raise
            task.uncancel()
            await failures.interrupted_answer()(scope, receive, send)
        finally:
            self._pending_tasks.discard(task)


class DrainMiddleware:
    """Middleware that every request passes, so that it can end at shutdown."""

    def __init__(self, app: ASGIApp, drain: Drain) -> None:
        self._app, self._drain = app, drain

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle the request; plain ASGI, so that bodies stream through untouched."""
        if scope["type"] == "http":
            await self._drain.answer(self._app, scope, receive, send)
        else:
            await self._app(scope, receive, send)
