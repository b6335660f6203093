"""What was read is cached: until there is news, for some seconds, while notices are heard."""

import pytest

from service.db.core.notify import Listener
from service.operations.core.cache import Cache


class Timer:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Source:
    """Counts how often it is read; ``meanwhile`` is notified while it is."""

    def __init__(self, listener: Listener) -> None:
        self.reads, self.meanwhile, self._listener = 0, "", listener

    async def read(self) -> str:
        self.reads += 1
        self._listener.wake(self.meanwhile)
        return f"read {self.reads}"


@pytest.fixture
def listener() -> Listener:
    connected = Listener("postgresql://nowhere")
    connected.is_connected = True
    return connected


@pytest.fixture
def timer() -> Timer:
    return Timer()


@pytest.fixture
def cache(listener: Listener, timer: Timer) -> Cache:
    return Cache(listener, "keys", seconds=5.0, most=2, timer=timer)


@pytest.fixture
def source(listener: Listener) -> Source:
    return Source(listener)


async def test_a_value_is_cached_for_some_time(cache: Cache, source: Source, timer: Timer) -> None:
    values = []
    for timer.now in (0.0, 4.9, 5.0):
        values.append(await cache.get("a", source.read))

    assert values == ["read 1", "read 1", "read 2"]


async def test_a_notice_clears_its_topic(cache: Cache, source: Source, listener: Listener) -> None:
    values = []
    for topic in ("jobs", "keys", "keys"):
        values.append(await cache.get("a", source.read))
        listener.wake(topic)

    assert [*values, await cache.get("a", source.read)] == ["read 1", "read 1", "read 2", "read 3"]
    assert len(listener._waiting["keys"]) == 1


async def test_what_changes_while_it_is_read_is_not_cached(cache: Cache, source: Source) -> None:
    source.meanwhile = "keys"

    assert [await cache.get("a", source.read) for _ in "ab"] == ["read 1", "read 2"]


async def test_without_notices_is_no_cache(
    cache: Cache, source: Source, listener: Listener
) -> None:
    await cache.get("a", source.read)
    listener.is_connected = False

    assert [await cache.get("a", source.read) for _ in "ab"] == ["read 2", "read 3"]


async def test_what_is_not_there_is_looked_for_each_time(cache: Cache, source: Source) -> None:
    async def nothing() -> str | None:
        return None

    assert await cache.get("a", nothing) is None
    assert await cache.get("a", source.read) == "read 1"


async def test_the_oldest_goes_when_there_are_too_many(cache: Cache, source: Source) -> None:
    for key in "abc":
        await cache.get(key, source.read)

    assert [cache.forget(key) for key in "abc"] == [False, True, True]
    assert await cache.get("b", source.read) == "read 4"
