"""What earlier requests for Spot teach a choice: droughts, hops, and signs of capacity."""

from datetime import UTC, datetime, timedelta

import pytest

from service.domain.ages import Ages
from service.domain.answers import Answer, Past
from service.domain.fleet import Offering
from service.domain.states import CapacityType

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
EAST, WEST = (
    Offering(region=region, vm_size="size", capacity_type=CapacityType.SPOT)
    for region in ("eastus", "westus")
)


def asked(offering: Offering, hours: float, *, granted: bool, **more: object) -> Answer:
    """So many hours after noon."""
    at = NOON + timedelta(hours=hours)
    usual: dict[str, object] = {"job_id": "job", "nodes": 2}
    return Answer(offering=offering, at=at, granted=granted, **usual | more)  # type: ignore[arg-type] # by name


def past(*answers: Answer, hours: float, nodes: int = 2) -> Past:
    """What is known so many hours after noon of a choice between both."""
    return Past.of(answers, (EAST, WEST), nodes, NOON + timedelta(hours=hours))


def test_a_drought_lasts_while_every_offering_refuses() -> None:
    known = past(
        asked(EAST, 0, granted=True),
        asked(EAST, 1, granted=False),
        asked(WEST, 2, granted=False),
        asked(EAST, 2.25, granted=False),
        asked(WEST, 5, granted=True),
        hours=6,
    )

    assert known.droughts == Ages.of([(3.0, True)])
    assert known.drought_seen


def test_a_drought_that_lasts_counts_as_far_as_it_came() -> None:
    known = past(
        asked(EAST, 0, granted=True),
        asked(EAST, 1, granted=False),
        asked(WEST, 1, granted=False),
        hours=4,
    )

    assert known.droughts == Ages.of([(3.0, False)])


def test_a_drought_whose_beginning_nobody_saw_is_older() -> None:
    known = past(asked(EAST, 1, granted=False), asked(WEST, 1, granted=False), hours=2)

    assert not known.drought_seen
    assert known.droughts == Ages.of([(1.0, False)], begun=4.0)


@pytest.mark.parametrize(
    ("then", "hops"),
    [
        (asked(WEST, 3.1, granted=True), (1, 1)),
        (asked(WEST, 3.5, granted=True), (1, 0)),
        (asked(EAST, 3.1, granted=True), (1, 0)),
        (asked(WEST, 3.1, granted=False), (1, 0)),
        (asked(WEST, 3.1, granted=True, job_id="other"), (1, 0)),
    ],
    ids=["at once", "too late", "where it was", "refused", "another job"],
)
def test_an_eviction_is_made_good_by_another_offering_at_once(
    then: Answer, hops: tuple[int, int]
) -> None:
    evicted = asked(EAST, 0, granted=True, evicted_at=NOON + timedelta(hours=3))

    assert past(evicted, then, hours=4).hops == hops


def test_an_offering_is_down_since_it_last_refused_or_evicted() -> None:
    evicted_at = NOON + timedelta(hours=2)
    known = past(
        asked(EAST, 1, granted=True, evicted_at=evicted_at),
        asked(WEST, 1, granted=False),
        asked(WEST, 3, granted=True),
        hours=4,
    )

    assert known.down_at == {EAST: evicted_at, WEST: NOON + timedelta(hours=1)}


def test_what_others_are_given_again_and_again_is_a_sign() -> None:
    twice = (asked(EAST, 1, granted=True), asked(EAST, 1.25, granted=True))
    refused = asked(EAST, 1.1, granted=False)

    assert past(*twice, hours=1.5).given_since == {EAST: NOON + timedelta(hours=1)}
    assert past(*twice, hours=1.5, nodes=4).given_since == {}
    assert past(*twice, hours=3).given_since == {}
    assert past(twice[0], refused, twice[1], hours=1.5).given_since == {}


def test_where_machines_were_taken_from_a_hold_that_goes_on_there_was_no_room_then() -> None:
    taken = NOON + timedelta(hours=3)
    known = past(asked(EAST, 1, granted=True, outlived_at=taken), hours=6)

    assert known.down_at == {EAST: taken}
    assert known.hops == (0, 0)


def test_an_eviction_was_made_good_where_the_job_was_given_machines_soon_after() -> None:
    taken = {"evicted_at": NOON + timedelta(hours=3)}
    gone = {"evicted_at": NOON + timedelta(hours=9)}
    known = past(
        asked(EAST, 1, granted=True, **taken),
        asked(EAST, 2, granted=True, job_id="other", **taken),
        asked(EAST, 3.01, granted=True),
        asked(EAST, 3.01, granted=False, job_id="other"),
        asked(WEST, 4, granted=True, job_id="other"),
        asked(WEST, 5, granted=True, job_id="never asks again", **gone),
        hours=12,
    )

    assert known.given_again == (2, 1)
