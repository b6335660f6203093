"""What was read a moment ago and nothing was told of since: it need not be read again."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Generic, TypeVar

from service.db.notices import Listener

T = TypeVar("T")


class Kept(Generic[T]):
    """By key; each until a topic of its own is notified, for ``seconds`` at most.

    Notices come some milliseconds after the commit; the seconds are for those that never come.
    While nothing is heard at all, nothing is kept.
    """

    def __init__(
        self,
        listener: Listener,
        *,
        seconds: float,
        most: int,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._listener, self._seconds, self._most, self._clock = listener, seconds, most, clock
        self._entries: OrderedDict[Hashable, _Entry[T]] = OrderedDict()  # oldest first

    def find(self, key: Hashable) -> T | None:
        """None: not there, or not sure any more."""
        entry = self._entries.get(key)
        if entry is None or self._clock() >= entry.until or entry.told():
            return None
        return entry.value

    def forget(self, key: Hashable) -> bool:
        """It turned out to be otherwise; False: it was not kept."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            entry.forget()
        return entry is not None

    @contextmanager
    def reading(self, key: Hashable, *topics: str) -> Iterator[Callable[[T], None]]:
        """Read within, and hand over what was read; no news from now on is missed."""
        until, event = self._clock() + self._seconds, self._listener.subscribe(*topics)

        def forget() -> None:
            self._listener.unsubscribe(event, *topics)

        read: list[T] = []
        try:
            yield read.append
        except BaseException:
            forget()
            raise
        if read and self._listener.hears and not event.is_set():
            entry = _Entry(value=read[-1], until=until, told=event.is_set, forget=forget)
            self._keep(key, entry)
        else:
            forget()

    def _keep(self, key: Hashable, entry: "_Entry[T]") -> None:
        if before := self._entries.pop(key, None):
            before.forget()
        self._entries[key] = entry
        now = self._clock()
        while len(self._entries) > self._most or (self._entries and self._oldest().until <= now):
            self._entries.popitem(last=False)[1].forget()

    def _oldest(self) -> "_Entry[T]":
        return next(iter(self._entries.values()))


@dataclass(frozen=True, kw_only=True)
class _Entry(Generic[T]):
    value: T
    until: float
    told: Callable[[], bool]
    forget: Callable[[], None]
