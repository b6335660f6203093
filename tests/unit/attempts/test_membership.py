"""Facts about membership, and about the service's record of a node."""

from dataclasses import replace

import pytest

from service.domain.lifecycle.generation import (
    HaltGeneration,
    KeepGeneration,
    NextMembers,
    NodeView,
    is_finished,
    is_trainers_fault,
    next_membership,
)
from service.domain.lifecycle.node import (
    IgnoredHeartbeat,
    NodeRecord,
    StaleHeartbeat,
    apply_directive,
    apply_heartbeat,
    apply_registration,
    is_stale,
    node_id,
)
from trainer.contract import (
    DirectiveKind,
    EvictionNotice,
    Generation,
    Heartbeat,
    Member,
    NodePhase,
    Registration,
)

READY, RUNNING, STOPPED, FAILED, FINISHED = NodePhase
START, SAVE_AND_STOP, STOP, CARRY_ON = DirectiveKind

GENERATION_2 = Generation(
    number=2,
    job_id="j",
    attempt_id="att",
    members=tuple(
        Member(node_id=f"n{r}", vm_id=f"v{r}", address=f"a{r}", node_rank=r) for r in range(2)
    ),
    processes_per_node=4,
    master_address="a0",
    master_port=1,
    checkpoint=None,
    run_spec_sha256="",
)


def node(name: str, phase: NodePhase = RUNNING, generation: int = 2) -> NodeView:
    return NodeView(
        node_id=f"n{name}",
        vm_id=f"v{name}",
        address=f"a{name}",
        phase=phase,
        generation=generation,
        free_port=1,
        present=True,
    )


ONE = node("1")
GONE = replace(node("0"), present=False)
UNDER_NOTICE = replace(node("0"), evicting=True)
RESTARTED = replace(node("0"), restarted_in=2)
SPARE = node("9", READY, 0)
FINISHED_1 = node("1", FINISHED)
THROUGH = (  # whatever becomes of its machine now
    FINISHED_1,
    replace(FINISHED_1, present=False),
    replace(FINISHED_1, evicting=True),
    replace(FINISHED_1, restarted_in=2),
)


@pytest.mark.parametrize(
    ("zero", "kind"),
    [
        (GONE, STOP),
        (node("0", FAILED), STOP),
        (RESTARTED, STOP),
        (replace(RESTARTED, evicting=True), STOP),  # there is nothing left to save with
        (UNDER_NOTICE, SAVE_AND_STOP),
        (node("0", STOPPED), SAVE_AND_STOP),
        (replace(node("0", FINISHED, 1), present=False), STOP),  # it had finished another one
    ],
)
def test_a_member_that_cannot_go_on_halts_the_others(zero: NodeView, kind: DirectiveKind) -> None:
    step = next_membership(GENERATION_2, [zero, ONE, SPARE], 2)

    assert isinstance(step, HaltGeneration)
    assert step.kind is kind
    assert "n1" in step.node_ids
    assert "n9" not in step.node_ids


def test_the_model_is_lost_with_the_machine_of_rank_0() -> None:
    two = replace(ONE, node_id="n2", vm_id="v2")
    third = Member(node_id="n2", vm_id="v2", address="a2", node_rank=2)
    world = replace(GENERATION_2, members=(*GENERATION_2.members, third))
    step = next_membership(world, [GONE, FINISHED_1, two], 2)

    assert isinstance(step, HaltGeneration)
    assert (step.kind, step.node_ids) == (STOP, ("n2",))


@pytest.mark.parametrize(
    ("zero", "one", "reason"),
    [
        (GONE, ONE, "a machine is gone"),
        (RESTARTED, node("1", FAILED), "a machine's supervisor was started again"),  # so it failed
        (node("0", FAILED), ONE, "a machine's trainer failed"),
        (node("0", generation=3), ONE, "a machine has gone on without this generation"),
    ],
)
def test_a_loss_is_told_by_what_came_first(zero: NodeView, one: NodeView, reason: str) -> None:
    step = next_membership(GENERATION_2, [one, zero], 2)

    assert isinstance(step, HaltGeneration)
    assert step.reason == reason


@pytest.mark.parametrize(
    "nodes",
    [
        [node("0"), ONE],
        [node("0", READY, 0), ONE],  # it has not heard of its start yet
        [node("0", STOPPED, 1), ONE],
        [node("0", FINISHED), ONE],  # the other is about to say so too
        *([node("0"), through] for through in THROUGH),  # rank 0 still uploads the model
        [replace(GONE, present=True, restarted_in=1), ONE],  # an older story
    ],
)
def test_a_generation_without_a_loss_is_left_alone(nodes: list[NodeView]) -> None:
    assert next_membership(GENERATION_2, nodes, 2) == KeepGeneration()


@pytest.mark.parametrize("zero", [GONE, node("0", FAILED), node("0", STOPPED), RESTARTED])
def test_nothing_is_opened_while_a_survivor_may_still_run(zero: NodeView) -> None:
    spares = [node(str(n), READY, 0) for n in range(5, 9)]

    assert not isinstance(next_membership(GENERATION_2, [zero, ONE, *spares], 2), NextMembers)


@pytest.mark.parametrize("phase", [STOPPED, FAILED, FINISHED])
def test_the_next_is_opened_once_every_member_has_settled(phase: NodePhase) -> None:
    step = next_membership(GENERATION_2, [GONE, node("1", phase), SPARE], 2)

    assert isinstance(step, NextMembers)
    assert [n.node_id for n in step.nodes] == ["n1", "n9"]


@pytest.mark.parametrize(
    "unfit",
    [
        replace(SPARE, present=False),
        replace(SPARE, evicting=True),
        replace(SPARE, phase=RUNNING, generation=1),
        replace(SPARE, free_port=0),  # registered, but not heard yet
    ],
)
def test_a_node_that_is_gone_or_going_or_busy_or_unheard_is_not_taken(unfit: NodeView) -> None:
    assert next_membership(None, [unfit, node("1", READY, 0)], 2) == KeepGeneration()


def test_only_rank_0_says_that_the_model_is_there() -> None:
    assert is_finished(GENERATION_2, [node("0", FINISHED), ONE])
    assert not is_finished(GENERATION_2, [node("0"), node("1", FINISHED)])
    assert not is_finished(GENERATION_2, [node("0", FINISHED, 1), ONE])


# --- the record of a node ------------------------------------------------------------------------


def registration(boot_id: str) -> Registration:
    return Registration(
        protocol=1, attempt_id="att", vm_id="v", boot_id=boot_id, name="x_1", address="a", gpus=8
    )


def beat(seq: int, *, epoch: int = 1, phase: NodePhase = RUNNING, generation: int = 2) -> Heartbeat:
    return Heartbeat(epoch=epoch, seq=seq, phase=phase, generation=generation, step=7, free_port=1)


FIRST = apply_registration(None, registration("boot-1"), 0)
STARTED = replace(
    FIRST, directive_seq=3, directive_kind=START, directive_number=2, phase=RUNNING, generation=2
)


def test_a_boot_registers_as_often_as_it_likes_under_one_node_id() -> None:
    assert FIRST.node_id == node_id("att", "v") != node_id("att-2", "v")
    assert FIRST.epoch == 1

    assert apply_registration(STARTED, registration("boot-1"), 2) == STARTED


def test_a_new_boot_raises_the_epoch_and_loses_its_start() -> None:
    after = apply_registration(replace(STARTED, heartbeat_seq=40), registration("boot-2"), 2)

    assert (after.epoch, after.heartbeat_seq, after.restarted_in) == (2, 0, 2)
    assert (after.directive_kind, after.directive_number, after.directive_seq) == (STOP, 2, 4)
    assert (after.phase, after.generation) == (RUNNING, 2)  # not settled by this alone
    for kind in (SAVE_AND_STOP, STOP):  # every other directive is kept
        after = apply_registration(replace(STARTED, directive_kind=kind), registration("boot-2"), 2)
        assert (after.directive_kind, after.directive_seq) == (kind, 3)


def test_memory_that_ran_out_is_remembered_until_another_generation_is_spoken_of() -> None:
    short = apply_heartbeat(STARTED, replace(beat(1), phase=FAILED, out_of_memory=True), 5.0)
    assert isinstance(short, NodeRecord)
    # A restarted supervisor no longer reports the lack of memory.
    reapplied = apply_heartbeat(short, replace(beat(2), phase=FAILED), 6.0)
    later = apply_heartbeat(short, beat(2, generation=3), 6.0)

    assert isinstance(reapplied, NodeRecord)
    assert isinstance(later, NodeRecord)
    assert (short.out_of_memory, reapplied.out_of_memory) == (True, True)
    assert not later.out_of_memory


def test_a_heartbeat_is_taken_in_once_and_in_order() -> None:
    after = apply_heartbeat(FIRST, beat(2), 5.0)

    assert isinstance(after, NodeRecord)
    assert (after.phase, after.generation, after.step, after.heard_at) == (RUNNING, 2, 7, 5.0)
    assert apply_heartbeat(after, beat(2), 6.0) == IgnoredHeartbeat()
    assert apply_heartbeat(after, beat(1, phase=READY, generation=0), 6.0) == IgnoredHeartbeat()
    for epoch in (0, 2):  # such a node registers first
        assert apply_heartbeat(after, beat(9, epoch=epoch), 6.0) == StaleHeartbeat()


def test_an_eviction_once_announced_is_not_forgotten_in_this_boot() -> None:
    notice = EvictionNotice(event_id="e", not_before=0.0, seen_at=0.0)
    after = apply_heartbeat(FIRST, replace(beat(1), eviction=notice), 5.0)
    assert isinstance(after, NodeRecord)
    later = apply_heartbeat(after, beat(2), 6.0)

    assert isinstance(later, NodeRecord)
    assert later.evicting
    assert not apply_registration(later, registration("boot-2"), 2).evicting


@pytest.mark.parametrize(
    ("phase", "generation", "stale"),
    [(RUNNING, 1, True), (RUNNING, 2, False), (STOPPED, 1, False), (READY, 0, False)],
)
def test_running_a_generation_that_has_a_successor_is_stale(
    phase: NodePhase, generation: int, stale: bool
) -> None:
    assert is_stale(beat(1, phase=phase, generation=generation), 2) is stale


@pytest.mark.parametrize(
    ("kind", "number", "wins"),
    [
        (START, 2, False),
        (SAVE_AND_STOP, 2, False),
        (STOP, 2, True),
        (STOP, 1, False),
        (START, 1, False),
        (START, 3, True),
        (SAVE_AND_STOP, 3, True),
    ],
)
def test_a_directive_gives_way_only_to_a_stronger_or_newer_one(
    kind: DirectiveKind, number: int, wins: bool
) -> None:
    before = replace(STARTED, directive_kind=SAVE_AND_STOP)
    after = apply_directive(before, kind, number)

    assert (after.directive_seq == before.directive_seq + 1) is wins
    assert after == before or (after.directive_kind, after.directive_number) == (kind, number)


def test_a_trainer_that_failed_beside_a_machine_that_went_or_restarted_is_not_to_blame() -> None:
    failed, peer = node("0", FAILED), node("1", STOPPED)

    assert is_trainers_fault(GENERATION_2, [failed, peer])
    assert not is_trainers_fault(GENERATION_2, [replace(failed, generation=1), peer])
    assert not is_trainers_fault(GENERATION_2, [replace(failed, phase=STOPPED), peer])
    assert not is_trainers_fault(GENERATION_2, [failed, replace(peer, restarted_in=2)])
    assert not is_trainers_fault(GENERATION_2, [failed, replace(peer, present=False)])
