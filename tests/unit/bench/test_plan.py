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
    KillKind,
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


@settings(max_examples=20)
@given(seed=st.integers(0, 1_000))
def test_of_a_thousand_kills_at_least_twenty_are_meant_for_every_phase_and_kind(seed: int) -> None:
    kills = flat(1000, seed)
    phases, kinds = Counter(k.phase for k in kills), Counter(k.kind for k in kills)

    assert min(phases[phase] for phase in Phase) >= 20
    assert min(kinds[kind] for kind in set(KillKind) - {KillKind.PREEMPT}) >= 20


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
def test_kills_wait_only_for_what_can_come(seed: int) -> None:
    """A checkpoint while a job trains, the deletion of a scale set once a machine was struck."""
    for slot in plan(200, seed, 2):
        struck = False
        for kill in slot:
            assert kill.phase in TRAINING or not kill.after_commit
            assert struck or kill.phase is not Phase.DELETE
            struck = struck or kill.kind in MACHINE


@pytest.mark.parametrize("kills", [1, 999])
def test_the_quotas_add_up(kills: int) -> None:
    assert quotas(kills).total() == kills


def test_every_phase_has_its_kinds() -> None:
    assert set(KINDS) == set(Phase)
    assert {kind for kinds in KINDS.values() for kind in kinds} == set(KillKind) - {
        KillKind.PREEMPT
    }
