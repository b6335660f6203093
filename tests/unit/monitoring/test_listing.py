"""What a list of all scale sets may be believed, and what must be looked at by itself."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from service.domain.cloud.fleet import ScaleSetPhase
from service.domain.cloud.scale_set_list import (
    MAX_OBSERVATIONS_PER_MINUTE,
    OBSERVATION_INTERVAL,
    KnownScaleSet,
    ListedScaleSet,
    ScaleSetList,
    has_changed,
    observation_interval,
    scale_set_from_list,
)
from service.domain.states import AttemptState

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
EVERY = timedelta(seconds=10)
READY, CREATING, DELETING = (ScaleSetPhase.READY, ScaleSetPhase.CREATING, ScaleSetPhase.DELETING)
TRAINS = KnownScaleSet(
    name="rk-1",
    state=AttemptState.RUNNING,
    instance_count=2,
    vm_ids=("a", "b"),
    seen_at=NOW,
    refilled_at=None,
)


def listing(phase: ScaleSetPhase, capacity: int) -> ScaleSetList:
    return ScaleSetList(listed_at=NOW, sets={"rk-1": ListedScaleSet(phase, capacity)})


def test_a_set_that_is_as_it_was_has_the_machines_that_it_had() -> None:
    scale_set = scale_set_from_list(TRAINS, listing(READY, 2), NOW)

    assert scale_set is not None
    assert [i.vm_id for i in scale_set.instances] == ["a", "b"]
    assert scale_set.phase is READY

    refilled = replace(TRAINS, refilled_at=NOW - timedelta(minutes=61))
    assert scale_set_from_list(refilled, listing(READY, 2), NOW) is not None


@pytest.mark.parametrize("listed", [listing(READY, 1), listing(CREATING, 2), listing(DELETING, 2)])
def test_a_set_that_has_changed_is_looked_at_by_itself(listed: ScaleSetList) -> None:
    assert has_changed(TRAINS, listed.sets["rk-1"])
    assert scale_set_from_list(TRAINS, listed, NOW) is None


def test_that_a_set_is_gone_is_never_believed_of_a_list() -> None:
    nothing = ScaleSetList(listed_at=NOW, sets={})

    assert has_changed(TRAINS, None)
    assert scale_set_from_list(TRAINS, nothing, NOW) is None
    leaving = replace(TRAINS, state=AttemptState.TERMINATING)
    assert scale_set_from_list(leaving, nothing, NOW) is None


@pytest.mark.parametrize(("age", "believed"), [(-11, False), (-9, True), (30, True), (31, False)])
def test_a_list_is_believed_for_three_rounds_and_not_from_far_ahead(
    age: int, believed: bool
) -> None:
    assert listing(READY, 2).is_fresh(NOW + timedelta(seconds=age), EVERY) is believed


def test_a_machine_that_lingers_is_found_by_a_look_every_so_often() -> None:
    interval = observation_interval(TRAINS.name, 1)

    assert scale_set_from_list(TRAINS, listing(READY, 2), NOW + interval) is not None
    assert (
        scale_set_from_list(TRAINS, listing(READY, 2), NOW + interval + timedelta(seconds=1))
        is None
    )


def test_looks_at_many_sets_leave_most_of_what_azure_allows_to_what_is_new() -> None:
    names = [f"rk-{n}" for n in range(5000)]
    minutes = [observation_interval(name, len(names)) / timedelta(minutes=1) for name in names]
    few = [observation_interval(name, 100) for name in names]

    assert sum(1 / m for m in minutes) < 1.1 * MAX_OBSERVATIONS_PER_MINUTE
    # Even if all began at once.
    assert max(Counter(map(round, minutes)).values()) < 2.5 * MAX_OBSERVATIONS_PER_MINUTE
    assert OBSERVATION_INTERVAL * 0.75 <= min(few) < max(few) <= OBSERVATION_INTERVAL * 1.25


@pytest.mark.parametrize(
    "known",
    [
        replace(TRAINS, vm_ids=("a",)),
        replace(TRAINS, refilled_at=NOW - timedelta(minutes=59)),
        replace(TRAINS, seen_at=None),
        replace(TRAINS, state=AttemptState.PROVISIONING),
    ],
)
def test_a_set_that_is_not_known_whole_is_looked_at_by_itself(known: KnownScaleSet) -> None:
    assert scale_set_from_list(known, listing(READY, 2), NOW) is None


def test_a_set_on_its_way_out_is_not_asked_for_while_it_is_listed_so() -> None:
    leaving = replace(TRAINS, state=AttemptState.TERMINATING)

    scale_set = scale_set_from_list(leaving, listing(DELETING, 2), NOW)

    assert scale_set is not None
    assert scale_set.phase is DELETING
    # The list is older than the deletion.
    assert scale_set_from_list(leaving, listing(READY, 2), NOW) is None
