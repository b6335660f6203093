"""Offerings without capacity are left alone for a while, by every job."""

from datetime import UTC, datetime, timedelta

from service.domain.shortage import FIRST, LONGEST, pause, refused
from tests.world import SPOT

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def test_each_further_refusal_doubles_the_time_up_to_a_cap() -> None:
    once = refused(None, SPOT, "AllocationFailed", NOW, NOW)
    twice = refused(once, SPOT, "AllocationFailed", NOW + FIRST, NOW + FIRST)

    assert once.ends_at == NOW + FIRST
    assert (twice.since, twice.in_a_row) == (NOW, 2)
    assert twice.ends_at == NOW + FIRST + 2 * FIRST
    assert pause(60) == LONGEST


def test_while_one_job_asks_the_others_wait() -> None:
    known = refused(None, SPOT, "AllocationFailed", NOW, NOW)
    over = known.ends_at + timedelta(seconds=1)

    assert known.holds(NOW)
    assert not known.holds(over)
    assert known.probed(over).holds(over + timedelta(minutes=1))


def test_what_was_asked_before_the_first_refusal_is_no_further_one() -> None:
    known = refused(None, SPOT, "AllocationFailed", NOW - FIRST, NOW)
    probed = known.probed(known.ends_at)
    soon, later = NOW + timedelta(seconds=5), probed.ends_at + timedelta(seconds=5)

    assert refused(known, SPOT, "again", NOW - FIRST, soon) == known
    assert refused(probed, SPOT, "again", NOW - FIRST, known.ends_at) == probed
    assert refused(probed, SPOT, "again", known.ends_at, known.ends_at + FIRST).in_a_row == 2
    assert refused(known, SPOT, "again", NOW - FIRST, later).in_a_row == 2  # nothing held any more
