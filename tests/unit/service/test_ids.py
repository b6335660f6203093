"""Ids that sort as they were drawn."""

from datetime import UTC, datetime, timedelta

from service.domain.ids import lower_bound_id, new_id

NOW = datetime(2026, 11, 20, 12, 0, 0, 123_456, tzinfo=UTC)
SOON = timedelta(milliseconds=1)


def test_ids_of_a_moment_sort_from_its_earliest_on_and_before_that_of_the_next() -> None:
    ids = [new_id("ftjob", NOW) for _ in range(100)]

    assert lower_bound_id("ftjob", NOW) <= min(ids)
    assert new_id("ftjob", NOW - SOON) < lower_bound_id("ftjob", NOW)
    assert max(ids) < lower_bound_id("ftjob", NOW + SOON)
