"""Wake reconcilers and long polls of all replicas by LISTEN/NOTIFY; polling is the fallback."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from socket import gethostname
from uuid import uuid4

import psycopg
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.core import replicas
from service.db.core.engine import connection_timeouts

CHANNEL = "rekindle"
DUE = "due"  # a row is due for a reconciler
_RECONNECT_SECONDS = 1.0


_NOTIFY = text("select pg_notify(:channel, topic) from unnest(cast(:topics as text[])) topic")


async def notify(conn: AsyncConnection, *topics: str) -> None:
    """Notify every listener of these topics when this transaction commits."""
    await conn.execute(_NOTIFY, {"channel": CHANNEL, "topics": list(topics)})


def any_of(kind: str) -> str:
    """Return the topic that is woken with every topic `kind:...`."""
    return f"{kind}:*"


class Listener:
    """One connection per process that passes notifications on to subscribers of topics."""

    def __init__(self, url: str) -> None:
        self._url = url.replace("+psycopg", "", 1)
        self._waiting: dict[str, set[asyncio.Event]] = defaultdict(set)
        self._collected: dict[str, list[set[str]]] = defaultdict(list)  # by kind
        self.is_connected = False  # whether the connection stands, as far as is known
        self.name = replicas.name_of(gethostname(), uuid4().hex[:8])  # of this replica
        self._application_name = ""

    def introduce(self, command: str, release: str | None) -> None:
        """Show this replica to the others, from the next connection on."""
        self._application_name = replicas.application_name(self.name, command, release)

    @asynccontextmanager
    async def subscribed(self, topic: str) -> AsyncIterator[asyncio.Event]:
        """Yield an event that is set when ``topic`` is notified or the connection is lost."""
        event = self.subscribe(topic)
        try:
            yield event
        finally:
            self.unsubscribe(event, topic)

    def subscribe(self, *topics: str) -> asyncio.Event:
        """Return an event that is set when any of the topics is notified, until ``unsubscribe``."""
        event = asyncio.Event()
        for topic in topics:
            self._waiting[topic].add(event)
        return event

    def unsubscribe(self, event: asyncio.Event, *topics: str) -> None:
        """Remove the event from these topics."""
        for topic in topics:
            self._waiting[topic].discard(event)
            if not self._waiting[topic]:
                del self._waiting[topic]

    @contextmanager
    def collecting(self, kind: str) -> Iterator[set[str]]:
        """Yield a set that collects every notified topic `kind:...`."""
        collected: set[str] = set()
        self._collected[kind].append(collected)
        try:
            yield collected
        finally:
            self._collected[kind] = [
                topics for topics in self._collected[kind] if topics is not collected
            ]

    async def run(self) -> None:
        """Listen until cancelled; reconnect after a lost connection, and wake every subscriber."""
        while True:
            try:
                with suppress(psycopg.Error):
                    await self._listen()
            finally:
                self.is_connected = False
                self.wake(*self._waiting)
            await asyncio.sleep(_RECONNECT_SECONDS)

    async def _listen(self) -> None:
        options = connection_timeouts(self._url)
        if self._application_name:
            options["application_name"] = self._application_name
        conn = await psycopg.AsyncConnection.connect(self._url, autocommit=True, **options)
        async with conn:
            await conn.execute(f"listen {CHANNEL}")
            self.wake(*self._waiting)  # notifications before LISTEN are lost
            self.is_connected = True
            async for notice in conn.notifies():
                self.wake(notice.payload)

    def wake(self, *topics: str) -> None:
        """Wake the subscribers of these topics, as a notification does."""
        for topic in topics:
            for event in self._waiting.get(topic, ()):
                event.set()
            if topic_sets := self._collected.get(topic.partition(":")[0]):
                self._collect(topic, topic_sets)

    def _collect(self, topic: str, topic_sets: list[set[str]]) -> None:
        kind, _, name = topic.partition(":")
        if name and topic != any_of(kind):
            for topics in topic_sets:
                topics.add(topic)
            for event in self._waiting.get(any_of(kind), ()):
                event.set()


async def wait(event: asyncio.Event, seconds: float) -> bool:
    """Wait for the event, ``seconds`` at most, and clear it; return whether it was set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):  # wait_for would make a task for each
            await event.wait()
    is_notified = event.is_set()
    event.clear()
    return is_notified
