"""How long members that are told to stop are left alone, and which news of theirs is urgent."""

from datetime import timedelta

import pytest

from service.domain.lifecycle.attempt import AttemptTiming, AttemptView
from service.domain.lifecycle.generation import HaltGeneration
from service.domain.lifecycle.node import NodeRecord, apply_heartbeat, should_wake_reconciler
from service.reconciler.attempts import requeue_delay
from tests.unit.attempts.attempt_facts import NOW, SAVE_AND_STOP, SECOND, START, STOP, TRAINS
from trainer.contract import DirectiveKind, EvictionNotice, Heartbeat, NodePhase

PACE = AttemptTiming(poll=10 * SECOND, settle=60 * SECOND, save=900 * SECOND)
NODE = NodeRecord(
    node_id="n",
    attempt_id="a",
    vm_id="v",
    boot_id="b",
    address="10.0.0.4",
    phase=TRAINS,
    generation=2,
    step=5,
    free_port=29500,
    directive_kind=START,
    directive_number=2,
)
NOTICE = EvictionNotice(event_id="e", not_before=0.0, seen_at=0.0)


@pytest.mark.parametrize(
    ("told", "ago", "asked", "pause"),
    [
        (None, 0, SAVE_AND_STOP, 10.0),
        (SAVE_AND_STOP, 600, SAVE_AND_STOP, 10.0),
        (SAVE_AND_STOP, 897, SAVE_AND_STOP, 3.1),
        (STOP, 55, STOP, 5.1),
        (STOP, 60, STOP, 0.1),
        (SAVE_AND_STOP, 600, STOP, 10.0),  # the time for STOP begins now
    ],
)
def test_members_that_stop_are_left_alone_for_a_poll_and_never_beyond_their_time(
    told: DirectiveKind | None, ago: int, asked: DirectiveKind, pause: float
) -> None:
    halted_at = NOW - timedelta(seconds=ago) if told else None
    seen = AttemptView(scale_set=None, halted_at=halted_at, halt_kind=told)
    step = HaltGeneration(kind=asked, node_ids=("n",), reason="")

    assert requeue_delay.while_stopping(seen, step, PACE, NOW) == timedelta(seconds=pause)


@pytest.mark.parametrize(
    ("kind", "number", "phase", "urgent"),
    [
        (START, 2, TRAINS, True),
        (SAVE_AND_STOP, 2, TRAINS, False),
        (STOP, 2, TRAINS, False),
        (STOP, 1, TRAINS, True),
        (STOP, 2, NodePhase.STOPPED, True),  # it has said so, and says nothing more
    ],
)
def test_a_notice_is_urgent_unless_the_machine_is_about_to_say_that_it_stopped(
    kind: DirectiveKind, number: int, phase: NodePhase, urgent: bool
) -> None:
    told = {"directive_kind": kind, "directive_number": number, "phase": phase}
    before = NodeRecord(**vars(NODE) | told)
    said = Heartbeat(
        epoch=1, seq=1, phase=phase, generation=2, step=5, free_port=29500, eviction=NOTICE
    )
    after = apply_heartbeat(before, said, 0.0)

    assert isinstance(after, NodeRecord)
    assert should_wake_reconciler(before, after, said) is urgent
