"""Tokens and circuits: how often Azure is asked, and when not at all."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from service.domain.cloud.politeness import (
    FAILURES,
    LIMITS,
    Bucket,
    Circuit,
    Kind,
    Limit,
    corrected,
    failed,
    full,
    take,
)

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
SMALL = Limit(size=10, a_minute=60)


def test_a_full_bucket_gives_its_size_and_then_what_comes_back() -> None:
    first = take(SMALL, full(SMALL, NOW), 100, NOW)
    second = take(SMALL, first.bucket, 100, NOW)
    third = take(SMALL, second.bucket, 100, NOW + timedelta(seconds=3))

    assert (first.granted, second.granted, third.granted) == (10, 0, 3)


@given(st.lists(st.tuples(st.floats(0, 30), st.integers(1, 20)), max_size=60))
def test_never_more_than_the_limit_whoever_asks_and_however_often(
    asked: list[tuple[float, int]],
) -> None:
    bucket, now, granted = full(SMALL, NOW), NOW, 0
    for seconds, wanted in asked:
        now += timedelta(seconds=seconds)
        taken = take(SMALL, bucket, wanted, now)
        bucket, granted = taken.bucket, granted + taken.granted

    assert granted <= SMALL.size + (now - NOW) / SMALL.apart + 1e-6


def test_a_replica_whose_clock_is_behind_fills_nothing_twice() -> None:
    ahead = take(SMALL, full(SMALL, NOW), 10, NOW + MINUTE).bucket
    behind = take(SMALL, ahead, 10, NOW)

    assert behind.granted == 0
    assert take(SMALL, behind.bucket, 10, NOW + MINUTE).granted == 0


def test_a_bucket_that_was_filled_by_a_clock_far_ahead_fills_again_from_now_on() -> None:
    wrong = take(SMALL, full(SMALL, NOW), 10_000, NOW + 60 * MINUTE).bucket
    now = take(SMALL, wrong, 1, NOW)

    assert now.granted == 0
    assert take(SMALL, now.bucket, 1, NOW + MINUTE).granted == 1


def test_what_azure_says_is_left_corrects_our_count_downwards_only() -> None:
    bucket = Bucket(tokens=100, at=NOW)

    assert corrected(bucket, 30, 10).tokens == 20
    assert corrected(bucket, 5, 10).tokens == 0
    assert corrected(bucket, 900, 10).tokens == 100


def test_every_kind_of_request_has_a_limit() -> None:
    assert set(LIMITS) == set(Kind)


def test_a_region_is_shut_after_some_failures_in_a_row_for_longer_each_time() -> None:
    circuit, pauses = Circuit(), []
    for _ in range(FAILURES + 12):
        circuit = failed(circuit, NOW, 0.5)
        pauses.append(circuit.shut_until - NOW if circuit.shut_until else timedelta(0))

    assert pauses[: FAILURES - 1] == [timedelta(0)] * (FAILURES - 1)
    assert pauses[FAILURES - 1] == timedelta(seconds=5)
    assert pauses == sorted(pauses)
    assert pauses[-1] == timedelta(minutes=5)


def test_a_shut_region_is_tried_by_one_when_its_time_is_over() -> None:
    shut = Circuit(failures=FAILURES, shut_until=NOW + MINUTE)

    assert shut.is_shut(NOW)
    assert not shut.is_shut(NOW + MINUTE)
    assert shut.is_tried
    assert not Circuit(failures=2).is_tried
