"""What requests to train rest on and what moves slowly: not read again for some seconds.

A plan is an estimate, and half a minute more or less of prices, of evictions and of other jobs'
paces makes no other one. Of a file nothing ever changes but that it is deleted, of a staged model
only a new revision; what must hold when a job is written is looked at by that statement.
"""

from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

from service.db.notices import Listener
from service.operations.kept import Kept

T = TypeVar("T")
SECONDS = 30.0  # so old they may be
MOST = 256  # of all kinds
_NEWS = "facts"  # nobody tells of it, but who hears nothing any more forgets what waits for news


class Facts:
    """By key; a process that does not hear from PostgreSQL reads them each time."""

    def __init__(self, listener: Listener) -> None:
        self._kept = Kept[Any](listener, seconds=SECONDS, most=MOST)

    async def of(self, key: Hashable, read: Callable[[], Awaitable[T]]) -> T:
        """What was read lately. None, where there is nothing, is read each time."""
        known: T | None = self._kept.find(key)
        if known is not None:
            return known
        with self._kept.reading(key, _NEWS) as keep:
            fresh = await read()
            if fresh is not None:
                keep(fresh)
        return fresh

    def forget(self, key: Hashable) -> bool:
        """It has changed; False: it was not kept, so what was read was new."""
        return self._kept.forget(key)
