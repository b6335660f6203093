"""What is known of Spot is read once for all that ask at a time."""

import asyncio
from datetime import UTC, datetime
from typing import cast

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.attempts import machine_history
from service.domain.placement.capacity_history import NO_HISTORY, CapacityHistory
from service.reconciler.cloud.capacity_history import CapacityHistoryCache
from tests.world import SPOT

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
NOWHERE = cast(AsyncConnection, None)  # nothing is asked of it


class Reads:
    """Counts reads; each takes until it is let go, and the first ends as it is told to."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.count, self.go, self.fault = 0, asyncio.Event(), fault

    async def past(self, *_: object) -> CapacityHistory:
        self.count += 1
        first = self.count == 1
        await self.go.wait()
        if first and self.fault:
            raise self.fault
        return NO_HISTORY


def asking(histories: CapacityHistoryCache, how_many: int) -> list[asyncio.Task[CapacityHistory]]:
    return [asyncio.create_task(histories.read(NOWHERE, [SPOT], 2, NOW)) for _ in range(how_many)]


async def turns() -> None:
    """Until everybody waits."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_of_two_that_ask_at_once_one_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = Reads()
    monkeypatch.setattr(machine_history, "capacity_history", reads.past)
    requests = asking(CapacityHistoryCache(), 2)
    await turns()
    reads.go.set()

    assert await asyncio.gather(*requests) == [NO_HISTORY, NO_HISTORY]
    assert reads.count == 1


async def test_where_the_one_who_reads_is_ended_the_next_one_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reads = Reads()
    monkeypatch.setattr(machine_history, "capacity_history", reads.past)
    first, second = asking(CapacityHistoryCache(), 2)
    await turns()
    first.cancel()
    reads.go.set()

    assert await second == NO_HISTORY
    assert first.cancelled()
    assert reads.count == 2


async def test_a_read_that_fails_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    reads, histories = Reads(OSError("away")), CapacityHistoryCache()
    monkeypatch.setattr(machine_history, "capacity_history", reads.past)
    reads.go.set()

    results = await asyncio.gather(*asking(histories, 2), return_exceptions=True)

    assert [type(t) for t in results] == [OSError, OSError]
    assert await histories.read(NOWHERE, [SPOT], 2, NOW) == NO_HISTORY
