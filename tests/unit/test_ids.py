"""Ids that sort as they were drawn."""

from datetime import UTC, datetime, timedelta

from service.domain.ids import earliest, new_id

NOW = datetime(2026, 11, 20, 12, 0, 0, 123_456, tzinfo=UTC)
SOON = timedelta(milliseconds=1)


def test_ids_of_a_moment_sort_from_its_earliest_on_and_before_that_of_the_next() -> None:
    drawn = [new_id("ftjob", NOW) for _ in range(100)]

    assert earliest("ftjob", NOW) <= min(drawn)
    assert new_id("ftjob", NOW - SOON) < earliest("ftjob", NOW)
    assert max(drawn) < earliest("ftjob", NOW + SOON)
