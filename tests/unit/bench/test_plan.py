"""Plan of kills: repeatable, spread over all phases, and never making a job fail by design."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.recovery.plan import (
    KINDS,
    MACHINE,
    MOST_RESTARTS,
    RESTART,
    TRAINING,
    Kill,
    Kind,
    Phase,
    plan,
    quotas,
)


def flat(kills: int, seed: int, slots: int = 2) -> list[Kill]:
    """Return all kills of a plan."""
    return [kill for slot in plan(kills, seed, slots) for kill in slot]


def test_the_same_seed_gives_the_same_plan_and_another_seed_another() -> None:
    assert plan(200, 7, 2) == plan(200, 7, 2)
    assert plan(200, 7, 2) != plan(200, 8, 2)


@given(seed=st.integers(0, 10_000))
def test_of_two_hundred_kills_at_least_four_are_meant_for_every_phase(seed: int) -> None:
    counts = Counter(kill.phase for kill in flat(200, seed))

    assert counts.total() == 200
    assert min(counts[phase] for phase in Phase) >= 4


@settings(max_examples=20)
@given(seed=st.integers(0, 1_000))
def test_of_a_thousand_kills_at_least_twenty_are_meant_for_every_phase_and_kind(seed: int) -> None:
    kills = flat(1000, seed)
    phases, kinds = Counter(k.phase for k in kills), Counter(k.kind for k in kills)

    assert min(phases[phase] for phase in Phase) >= 20
    assert min(kinds[kind] for kind in set(Kind) - {Kind.PREEMPT}) >= 20


@given(kills=st.integers(1, 300), seed=st.integers(0, 1_000))
def test_no_more_restarts_follow_each_other_than_a_job_survives(kills: int, seed: int) -> None:
    for slot in plan(kills, seed, 2):
        row = 0
        for kill in slot:
            row = 0 if kill.after_commit else row
            row += kill.kind in RESTART and kill.phase is not Phase.BOOT
            assert row <= MOST_RESTARTS


@settings(max_examples=20)
@given(seed=st.integers(0, 1_000))
def test_a_checkpoint_is_waited_for_only_while_it_can_come(seed: int) -> None:
    assert all(kill.phase in TRAINING for kill in flat(200, seed) if kill.after_commit)


@settings(max_examples=20)
@given(seed=st.integers(0, 1_000))
def test_a_scale_set_is_deleted_only_after_a_machine_was_struck(seed: int) -> None:
    for slot in plan(200, seed, 2):
        struck = False
        for kill in slot:
            assert struck or kill.phase is not Phase.DELETE
            struck = struck or kill.kind in MACHINE


@pytest.mark.parametrize("kills", [1, 6, 20, 200, 999, 1000])
def test_the_quotas_add_up(kills: int) -> None:
    assert quotas(kills).total() == kills


def test_every_phase_has_its_kinds() -> None:
    assert set(KINDS) == set(Phase)
    assert {kind for kinds in KINDS.values() for kind in kinds} == set(Kind) - {Kind.PREEMPT}
