"""The arithmetic of token buckets, and how long a deferred call keeps its tokens."""

from datetime import UTC, datetime, timedelta

import pytest

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
