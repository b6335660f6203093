"""Waiting for a condition with a deadline, by moving a clock or by really waiting."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from tests.clock import Clock

T = TypeVar("T")


class Waiter(Protocol):
    """Lets some time pass."""

    async def __call__(self, seconds: float) -> None: ...


def on(clock: Clock) -> Waiter:
    """Time passes by moving ``clock``."""

    async def wait(seconds: float) -> None:
        clock.advance(seconds=seconds)

    return wait


async def really(seconds: float) -> None:
    """Time passes by itself."""
    await asyncio.sleep(seconds)


async def until(
    look: Callable[[], Awaitable[T]],
    accept: Callable[[T], bool],
    *,
    wait: Waiter = really,
    interval: float = 0.1,
    deadline: float = 60.0,
) -> T:
    """Look every ``interval`` seconds until ``accept`` likes what is seen, and return that."""
    waited = 0.0
    while not accept(seen := await look()):
        assert waited < deadline, f"not within {deadline} s; last seen: {seen!r}"
        await wait(interval)
        waited += interval
    return seen
