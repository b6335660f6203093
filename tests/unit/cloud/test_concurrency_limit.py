"""Calls beyond the concurrency limit are refused at once, and told when to come again."""

import heapq
from contextlib import ExitStack
from datetime import timedelta

import pytest

from service.reconciler.cloud.concurrency_limit import ConcurrencyLimit, ConcurrencyLimitReached
from tests.clock import Clock

MANY, CALL = 400, 3.0  # calls, and how many seconds each takes


def refused(limit: ConcurrencyLimit, region: str = "eastus") -> float:
    """Return for how long a call has to wait."""
    with pytest.raises(ConcurrencyLimitReached) as refusal, limit.slot(region):
        pass
    return refusal.value.retry_after


def test_those_who_are_refused_come_again_one_after_the_other_and_soon(clock: Clock) -> None:
    limit = ConcurrencyLimit(now=clock, limit=2)
    with limit.slot("eastus"), limit.slot("eastus"):
        waits = [refused(limit) for _ in range(100)]

    assert waits[20] > waits[0] + 8  # a call ends every half second, as two of a second do
    assert max(waits) <= 31


def test_a_call_that_ends_makes_room_in_its_region(clock: Clock) -> None:
    limit = ConcurrencyLimit(now=clock, limit=1)
    with limit.slot("eastus"), limit.slot("westus"):
        refused(limit)
    with limit.slot("eastus"):
        assert limit.in_progress == {"eastus": 1, "westus": 0}


def test_many_who_come_again_when_told_soon_have_all_been_served(clock: Clock) -> None:
    limit = ConcurrencyLimit(now=clock, limit=5)
    comes, ends, served, began = [0.0] * MANY, list[float](), 0, clock()
    with ExitStack() as full:
        for _ in range(limit.limit):
            full.enter_context(limit.slot("eastus"))
        while comes:
            at = heapq.heappop(comes)
            now = (clock() - began).total_seconds()
            clock.advance(seconds=max(at - now, 0))
            ends = [end for end in ends if end > at]
            if len(ends) < limit.limit:
                ends.append(at + CALL)
                served += 1
            else:
                heapq.heappush(comes, at + refused(limit))

    assert served == MANY
    assert clock() - began < timedelta(seconds=1.5 * MANY / limit.limit * CALL)
