"""A cache of values from the database, cleared when a notice says that they have changed."""

from asyncio import Event
from collections.abc import Awaitable, Callable, Hashable
from time import monotonic
from typing import Any, TypeVar

from cachetools import TTLCache

from service.db.core.notify import Listener

T = TypeVar("T")


class Cache:
    """Keeps values for ``seconds`` at most, and none once ``topic`` is notified.

    Notices arrive some milliseconds after the commit. While the process cannot receive any, it
    caches nothing.
    """

    def __init__(
        self,
        listener: Listener,
        topic: str,
        *,
        seconds: float,
        most: int,
        timer: Callable[[], float] = monotonic,
    ) -> None:
        self._listener, self._topic = listener, topic
        self._values = TTLCache[Hashable, Any](most, seconds, timer)
        self._notice = listener.subscribe(topic)

    async def get(self, key: Hashable, read: Callable[[], Awaitable[T]]) -> T:
        """Return the cached value, or read it. None is never cached."""
        notice = self._check_notice()
        cached: T | None = self._values.get(key)
        if cached is not None:
            return cached
        value = await read()
        if value is not None and self._listener.is_connected and not notice.is_set():
            self._values[key] = value
        return value

    def forget(self, key: Hashable) -> bool:
        """Drop an outdated value; return False if there was none."""
        return self._values.pop(key, None) is not None

    def _check_notice(self) -> Event:
        """Clear the cache after a notice; return the event of the next one."""
        if self._notice.is_set() or not self._listener.is_connected:
            self._values.clear()
            self._listener.unsubscribe(self._notice, self._topic)
            self._notice = self._listener.subscribe(self._topic)
        return self._notice
