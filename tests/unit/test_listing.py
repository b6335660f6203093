"""What a list of all scale sets may be believed, and what must be looked at by itself."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from service.domain.fleet import ScaleSetPhase
from service.domain.listing import LOOK_EVERY, Known, Listed, Listing, as_listed, has_changed
from service.domain.states import AttemptState

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
EVERY = timedelta(seconds=10)
READY, CREATING, DELETING = (
    ScaleSetPhase.READY,
    ScaleSetPhase.CREATING,
    ScaleSetPhase.DELETING,
)
TRAINS = Known(
    name="rk-1",
    state=AttemptState.RUNNING,
    instance_count=2,
    vm_ids=("a", "b"),
    seen_at=NOW,
    refilled=False,
)


def listing(phase: ScaleSetPhase, capacity: int) -> Listing:
    return Listing(listed_at=NOW, sets={"rk-1": Listed(phase, capacity)})


def test_a_set_that_is_as_it_was_has_the_machines_that_it_had() -> None:
    found = as_listed(TRAINS, listing(READY, 2), NOW)

    assert found is not None
    assert [i.vm_id for i in found.instances] == ["a", "b"]
    assert found.phase is READY


@pytest.mark.parametrize("told", [listing(READY, 1), listing(CREATING, 2), listing(DELETING, 2)])
def test_a_set_that_has_changed_is_looked_at_by_itself(told: Listing) -> None:
    assert has_changed(TRAINS, told.sets["rk-1"])
    assert as_listed(TRAINS, told, NOW) is None


def test_that_a_set_is_gone_is_never_believed_of_a_list() -> None:
    nothing = Listing(listed_at=NOW, sets={})

    assert has_changed(TRAINS, None)
    assert as_listed(TRAINS, nothing, NOW) is None
    leaving = replace(TRAINS, state=AttemptState.TERMINATING)
    assert as_listed(leaving, nothing, NOW) is None


@pytest.mark.parametrize(("age", "believed"), [(-11, False), (-9, True), (30, True), (31, False)])
def test_a_list_is_believed_for_three_rounds_and_not_from_far_ahead(
    age: int, believed: bool
) -> None:
    assert listing(READY, 2).is_fresh(NOW + timedelta(seconds=age), EVERY) is believed


def test_a_machine_that_lingers_is_found_by_a_look_every_so_often() -> None:
    later = NOW + LOOK_EVERY + timedelta(seconds=1)

    assert as_listed(TRAINS, listing(READY, 2), later) is None


@pytest.mark.parametrize(
    "known",
    [
        replace(TRAINS, vm_ids=("a",)),
        replace(TRAINS, refilled=True),
        replace(TRAINS, seen_at=None),
        replace(TRAINS, state=AttemptState.PROVISIONING),
    ],
)
def test_a_set_that_is_not_known_whole_is_looked_at_by_itself(known: Known) -> None:
    assert as_listed(known, listing(READY, 2), NOW) is None


def test_a_set_on_its_way_out_is_not_asked_for_while_it_is_listed_so() -> None:
    leaving = replace(TRAINS, state=AttemptState.TERMINATING)

    found = as_listed(leaving, listing(DELETING, 2), NOW)

    assert found is not None
    assert found.phase is DELETING
    assert as_listed(leaving, listing(READY, 2), NOW) is None  # listed before it was deleted


def test_an_old_list_tells_nothing() -> None:
    told = listing(READY, 2)

    assert told.is_fresh(NOW + 3 * EVERY, EVERY)
    assert not told.is_fresh(NOW + 3.1 * EVERY, EVERY)
