"""Token buckets, circuits and the concurrency limit: the arithmetic of calls to Azure."""

import heapq
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import pytest

from service.domain.cloud.circuit_breaker import FAILURES, Circuit, after_failure
from service.domain.cloud.rate_limit import (
    BUCKETS,
    LONGEST_WAIT,
    PERMIT_LIFE,
    SWEPT,
    TOKENS,
    CloudCall,
    Deferral,
    RequestKind,
    TokenBucket,
)
from service.reconciler.cloud.concurrency_limit import ConcurrencyLimit, ConcurrencyLimitReached
from tests.clock import Clock

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
ONE_A_SECOND = TokenBucket(size=10, per_minute=60)


@pytest.mark.parametrize(
    ("balance", "seconds"), [(9.0, 0), (0.0, 0), (-0.5, 0.5), (-1.0, 1), (-7.0, 7), (-1e9, 3600)]
)
def test_the_k_th_caller_without_a_token_waits_for_k_of_them(
    balance: float, seconds: float
) -> None:
    assert ONE_A_SECOND.wait(balance) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("ago", "pending", "due"),
    [
        (-LONGEST_WAIT - SECOND, False, False),  # of a clock that is ahead
        (-LONGEST_WAIT, True, False),
        (-SECOND, True, False),
        (timedelta(0), False, True),
        (PERMIT_LIFE, False, True),
        (PERMIT_LIFE + SECOND, False, False),  # its tokens are lost
    ],
)
def test_a_deferred_call_is_pending_then_due_for_a_minute_and_then_forgotten(
    ago: timedelta, *, pending: bool, due: bool
) -> None:
    deferral = Deferral(call=CloudCall.GET, until=NOW - ago)

    assert (deferral.is_pending(NOW), deferral.is_due(NOW)) == (pending, due)


def test_every_kind_of_request_has_a_bucket_and_sweeps_a_share_of_what_they_ask_for() -> None:
    sweeps = {kind for call in ("get", "delete") for kind in TOKENS[CloudCall(call)]}

    assert set(BUCKETS) == set(RequestKind)
    assert set(SWEPT) == sweeps
    assert set(TOKENS) == set(CloudCall)


MINUTE = timedelta(minutes=1)


def test_a_region_is_shut_after_some_failures_in_a_row_for_longer_each_time() -> None:
    circuit, pauses = Circuit(), []
    for _ in range(FAILURES + 12):
        circuit = after_failure(circuit, NOW, 0.5)
        pauses.append(circuit.shut_until - NOW if circuit.shut_until else timedelta(0))

    assert pauses[: FAILURES - 1] == [timedelta(0)] * (FAILURES - 1)
    assert pauses[FAILURES - 1] == timedelta(seconds=5)
    assert pauses == sorted(pauses)
    assert pauses[-1] == timedelta(minutes=5)


def test_a_shut_region_is_tried_by_one_when_its_time_is_over() -> None:
    shut = Circuit(failures=FAILURES, shut_until=NOW + MINUTE)

    assert shut.is_shut(NOW)
    assert not shut.is_shut(NOW + MINUTE)


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
    comes, ends, served, start = [0.0] * MANY, list[float](), 0, clock()
    with ExitStack() as full:
        for _ in range(limit.limit):
            full.enter_context(limit.slot("eastus"))
        while comes:
            at = heapq.heappop(comes)
            now = (clock() - start).total_seconds()
            clock.advance(seconds=max(at - now, 0))
            ends = [end for end in ends if end > at]
            if len(ends) < limit.limit:
                ends.append(at + CALL)
                served += 1
            else:
                heapq.heappush(comes, at + refused(limit))

    assert served == MANY
    assert clock() - start < timedelta(seconds=1.5 * MANY / limit.limit * CALL)
