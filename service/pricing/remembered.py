"""Cache answers of an external list: one request at a time, and a pause after a failure.

A user or a move waits for the answer, so an older answer is better than none.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from service.pricing.source import PricesUnavailable

K = TypeVar("K")
V = TypeVar("V")
_NEVER = float("-inf")
RETRY_SECONDS = 30.0  # after a failure
MAX_AGE_SECONDS = 3600.0  # largest age of an answer while newer requests fail


@dataclass
class _Entry(Generic[V]):
    answers: list[V] = field(default_factory=list)  # the last one, or none yet
    read_at: float = _NEVER
    failed_at: float = _NEVER
    failure_message: str = ""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class PriceListCache(Generic[K, V]):
    """Cache of the answers of ``fetch`` by key, each valid for ``seconds``."""

    def __init__(
        self, fetch: Callable[[K], Awaitable[V]], seconds: float, clock: Callable[[], float]
    ) -> None:
        self._fetch, self._seconds, self._clock = fetch, seconds, clock
        self._entries: defaultdict[K, _Entry[V]] = defaultdict(_Entry)

    async def get(self, key: K) -> V:
        """Return the answer for ``key``, renewed if it is old. Raises PricesUnavailable."""
        entry = self._entries[key]
        async with entry.lock:  # concurrent callers wait for one answer
            now = self._clock()
            if now - entry.read_at > self._seconds and now - entry.failed_at > RETRY_SECONDS:
                await self._renew(key, entry)
            if not entry.answers or now - entry.read_at > MAX_AGE_SECONDS:
                raise PricesUnavailable(entry.failure_message)
            return entry.answers[0]

    async def _renew(self, key: K, entry: _Entry[V]) -> None:
        try:
            entry.answers = [await self._fetch(key)]
        except PricesUnavailable as failure:
            entry.failed_at, entry.failure_message = self._clock(), str(failure)
        else:
            entry.read_at = self._clock()
