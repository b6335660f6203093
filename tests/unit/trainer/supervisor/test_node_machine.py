"""Facts about the node machine: what a node does about what it hears, one fact a line."""

from dataclasses import replace

import pytest

from tests.nodes.supervised import ALONE
from trainer.contract import Directive, DirectiveKind, Generation, NodePhase
from trainer.supervisor.control.node_state import (
    AbandonRun,
    Effect,
    KillTrainer,
    LaunchTrainer,
    LeaveAttempt,
    NodeState,
    SalvageSaves,
    SaveAndStop,
    on_attempt_over,
    on_directive,
    on_eviction_notice,
    on_run_ended,
    on_stale_generation,
    on_stop_by_passed,
    on_supervisor_restart,
)

READY, RUNNING, STOPPED, FAILED, FINISHED = NodePhase
START, SAVE_AND_STOP, STOP, CARRY_ON = DirectiveKind


def row(number: int) -> Generation:
    return replace(ALONE, number=number)


def directive_to(kind: DirectiveKind, number: int, seq: int = 9) -> Directive:
    generation = row(number) if kind is START else None
    return Directive(seq=seq, kind=kind, now=0.0, stop_by=1.0, number=number, generation=generation)


FRESH = NodeState(epoch=1)
AT_2 = NodeState(epoch=1, directive=5, generation=2, phase=RUNNING)
STOPPING_2 = replace(AT_2, stopping=True)
STOPPED_2 = replace(AT_2, phase=STOPPED)
FINISHED_2 = replace(AT_2, phase=FINISHED)
LEAVING = replace(FRESH, evicting=True)


@pytest.mark.parametrize(
    ("node", "kind", "number", "phase", "generation", "effects"),
    [
        (FRESH, START, 1, RUNNING, 1, (LaunchTrainer(generation=row(1)),)),
        (STOPPED_2, START, 3, RUNNING, 3, (LaunchTrainer(generation=row(3)),)),
        (FINISHED_2, START, 3, RUNNING, 3, (LaunchTrainer(generation=row(3)),)),
        (AT_2, START, 3, RUNNING, 3, (AbandonRun(), LaunchTrainer(generation=row(3)))),
        (AT_2, START, 2, RUNNING, 2, ()),  # it runs already
        (STOPPED_2, START, 2, STOPPED, 2, ()),  # a generation is started once
        (STOPPED_2, START, 1, STOPPED, 2, ()),
        (LEAVING, START, 1, READY, 0, ()),  # nothing is started under a notice
        (AT_2, SAVE_AND_STOP, 2, RUNNING, 2, (SaveAndStop(),)),
        (STOPPING_2, SAVE_AND_STOP, 2, RUNNING, 2, ()),
        (AT_2, STOP, 2, RUNNING, 2, (KillTrainer(),)),
        (STOPPING_2, STOP, 2, RUNNING, 2, (KillTrainer(),)),  # no more time for the save
        (AT_2, STOP, 1, RUNNING, 2, ()),  # about the past
        (AT_2, SAVE_AND_STOP, 1, RUNNING, 2, ()),
        (FRESH, STOP, 1, STOPPED, 1, ()),  # told before it started: now it never will
        (STOPPED_2, STOP, 3, STOPPED, 3, ()),
        (FINISHED_2, STOP, 2, FINISHED, 2, ()),  # it says how it was, not that it obeyed
        (AT_2, CARRY_ON, 0, RUNNING, 2, ()),
    ],
)
def test_directives(
    node: NodeState,
    kind: DirectiveKind,
    number: int,
    phase: NodePhase,
    generation: int,
    effects: tuple[Effect, ...],
) -> None:
    after, does = on_directive(node, directive_to(kind, number))

    assert (after.phase, after.generation, does) == (phase, generation, effects)


@pytest.mark.parametrize("kind", [START, SAVE_AND_STOP, STOP, CARRY_ON])
@pytest.mark.parametrize("seq", [4, 5])
def test_a_replayed_directive_changes_nothing(kind: DirectiveKind, seq: int) -> None:
    assert on_directive(AT_2, directive_to(kind, 3, seq)) == (AT_2, ())


def test_a_directive_without_effect_is_remembered_all_the_same() -> None:
    after, _ = on_directive(LEAVING, directive_to(START, 1, seq=7))

    assert after.directive == 7
    assert on_directive(AT_2, directive_to(CARRY_ON, 0, seq=99))[0] == AT_2, "it is none"


@pytest.mark.parametrize(
    ("node", "number", "how", "phase"),
    [
        (AT_2, 2, FINISHED, FINISHED),
        (AT_2, 2, FAILED, FAILED),
        (AT_2, 2, STOPPED, STOPPED),
        (STOPPING_2, 2, FAILED, STOPPED),  # it was killed, that is no error
        (STOPPING_2, 2, FINISHED, FINISHED),
        (AT_2, 1, FAILED, RUNNING),  # news of the generation before
        (STOPPED_2, 2, FAILED, STOPPED),  # said already
    ],
)
def test_the_end_of_a_trainer(
    node: NodeState, number: int, how: NodePhase, phase: NodePhase
) -> None:
    after, effects = on_run_ended(node, number, how)

    assert (after.phase, effects) == (phase, ())
    assert not after.stopping or phase is RUNNING


@pytest.mark.parametrize(
    ("react", "node", "effects"),
    [
        (on_eviction_notice, AT_2, (SaveAndStop(),)),
        (on_eviction_notice, STOPPING_2, ()),
        (on_eviction_notice, STOPPED_2, ()),
        (on_stop_by_passed, AT_2, (SaveAndStop(),)),
        (on_stop_by_passed, STOPPING_2, ()),
        (on_stop_by_passed, FRESH, ()),
        (on_stale_generation, AT_2, (AbandonRun(),)),
        (on_stale_generation, STOPPING_2, (AbandonRun(),)),
        (on_stale_generation, STOPPED_2, ()),
        (on_attempt_over, AT_2, (LeaveAttempt(),)),
        (on_attempt_over, FRESH, (LeaveAttempt(),)),
        (on_supervisor_restart, AT_2, (SalvageSaves(),)),
        (on_supervisor_restart, replace(AT_2, evicting=True), (SalvageSaves(),)),
        (on_supervisor_restart, replace(STOPPED_2, evicting=True), ()),
    ],
)
def test_other_news(react, node: NodeState, effects: tuple[Effect, ...]) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    after, does = react(node)

    assert does == effects
    ends = react in (on_eviction_notice, on_attempt_over)
    assert after.evicting is ends, "nothing is started any more"


def test_a_trainer_that_ran_when_its_supervisor_died_has_not_settled_before_its_saves() -> None:
    back, _ = on_supervisor_restart(AT_2)

    assert (back.phase, back.stopping) == (RUNNING, True)
    assert on_directive(back, directive_to(START, 2)) == (replace(back, directive=9), ())
    assert on_run_ended(back, 2, STOPPED)[0].phase is STOPPED


def test_a_supervisor_killed_again_while_it_settles_settles_once_more() -> None:
    back, _ = on_supervisor_restart(AT_2)

    assert on_supervisor_restart(back) == (back, (SalvageSaves(),))


def test_what_had_settled_before_a_restart_stays_so() -> None:
    assert on_supervisor_restart(FINISHED_2)[0] == FINISHED_2


def test_what_a_node_remembers_survives_its_disk() -> None:
    assert NodeState.from_json(STOPPING_2.to_json()) == STOPPING_2
