"""Wait for a condition with a deadline, on a test's clock or in real time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from tests.clock import Clock

T = TypeVar("T")


class Waiter(Protocol):
    """Function that lets some seconds pass."""

    async def __call__(self, seconds: float) -> None: ...


def on(clock: Clock) -> Waiter:
    """Return a waiter that moves ``clock``."""

    async def wait(seconds: float) -> None:
        clock.advance(seconds=seconds)

    return wait


async def really(seconds: float) -> None:
    """Sleep in real time."""
    await asyncio.sleep(seconds)


async def until(
    look: Callable[[], Awaitable[T]],
    accept: Callable[[T], bool],
    *,
    wait: Waiter = really,
    interval: float = 0.1,
    deadline: float = 60.0,
) -> T:
    """Call ``look`` every ``interval`` seconds until ``accept`` holds, and return the last value.

    Raises:
        AssertionError: It did not hold within ``deadline`` seconds.
    """
    waited = 0.0
    while not accept(value := await look()):
        assert waited < deadline, f"not within {deadline} s; last seen: {value!r}"
        await wait(interval)
        waited += interval
    return value


async def until_true(holds: Callable[[], object], deadline: float = 60.0) -> None:
    """Wait in real time until ``holds`` returns something true."""

    async def look() -> object:
        return holds()

    await until(look, bool, deadline=deadline)
