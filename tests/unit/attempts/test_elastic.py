"""What an elastic job may train on, when it grows, and what its attempt does next."""

import math
from dataclasses import replace

import pytest

from service.domain.lifecycle.attempt import (
    JOINS,
    Attempt,
    AttemptStep,
    AttemptView,
    MoveAttempt,
    OpenGeneration,
    RefillScaleSet,
    RequeueAttempt,
)
from service.domain.lifecycle.attempt_steps import next_step
from service.domain.lifecycle.elastic import (
    ElasticNodes,
    GrowthOutlook,
    StepBatch,
    allowed_node_counts,
    is_growth_worthwhile,
    is_request_worthwhile,
    largest_count,
    smallest_elastic_batch,
)
from service.domain.lifecycle.generation import HaltGeneration, count_without_loss
from service.domain.lifecycle.refill import is_refill_due
from service.domain.states import Outcome
from tests.unit.attempts.attempt_facts import (
    BROKEN,
    CRASHED,
    CREATING,
    GENERATION,
    MINUTE,
    NOW,
    PACE,
    READY,
    RUNNING,
    SAVE_AND_STOP,
    SECOND,
    STARTING,
    STOP,
    STOPPED,
    TERMINATING,
    TRAINING,
    attempt,
    halted,
    machines,
    node,
)
from trainer.contract import Member, micro_steps

BATCH = StepBatch(rows=12, rows_per_node=1)
THREE = replace(
    GENERATION,
    members=tuple(
        Member(node_id=f"n{r}", vm_id=f"v{r}", address="", node_rank=r) for r in range(3)
    ),
)
ELASTIC = ElasticNodes(min_nodes=2, node_counts=(2, 3), batch=BATCH)
ALL = replace(
    TRAINING, scale_set=machines(running=3), generation=THREE, nodes=[node(r) for r in range(3)]
)
TAKEN = replace(node(2), present=False)
LOST = replace(ALL, scale_set=machines(running=2), nodes=[node(0), node(1), TAKEN])
LOST_AND_STOPPED = replace(LOST, nodes=[node(0, STOPPED), node(1, STOPPED), TAKEN])
LOST_AND_FAILED = replace(LOST, fruitless=1, nodes=[node(0, CRASHED), node(1, CRASHED), TAKEN])
LEAVING = replace(node(2, STOPPED), evicting=True)
SAVED = replace(ALL, nodes=[node(0, STOPPED), node(1, STOPPED), LEAVING])
ONE_LEFT = replace(
    ALL,
    scale_set=machines(running=1),
    nodes=[node(0, STOPPED), replace(node(1), present=False), TAKEN],
)
ON_TWO = replace(TRAINING, nodes=[node(0), node(1)], scale_set=machines(running=2))
NEW = replace(node(3, READY, 0))
WITH_NEW = replace(ON_TWO, nodes=[*ON_TWO.nodes, NEW], scale_set=machines(running=3))
FULL_OF_OLD = machines(running=3, created_at=NOW - 31 * MINUTE)
HUNG = replace(node(2, READY, 0), quiet=20 * MINUTE)
SHORT_LIFE = GrowthOutlook(remaining=30.0, restart=20.0)


def _of_three(row: Attempt) -> Attempt:
    return replace(row, instance_count=3, elastic=ELASTIC)


def _with_refills(row: Attempt, times: int, ago: float) -> Attempt:
    return replace(row, refills=times, refilled_at=NOW - ago * SECOND)


TRAINS = _of_three(attempt(RUNNING))
GROWING = HaltGeneration(kind=SAVE_AND_STOP, node_ids=("n0", "n1"), reason=JOINS)
row = pytest.param
RULES = {
    "full and healthy, it is left alone": row(TRAINS, ALL, RequeueAttempt()),
    "when a machine is gone the survivors are stopped first": row(
        TRAINS, LOST, HaltGeneration(kind=STOP, node_ids=("n0", "n1"), reason="a machine is gone")
    ),
    "once they are told, another machine is asked for": row(
        TRAINS, halted(LOST, STOP, SECOND), RefillScaleSet()
    ),
    "survivors that have stopped go on in place": row(
        _with_refills(TRAINS, 1, 1),
        LOST_AND_STOPPED,
        OpenGeneration(nodes=(node(0, STOPPED), node(1, STOPPED)), lost=(TAKEN,)),
    ),
    "a failure of survivors is no trainer error": row(
        replace(_with_refills(TRAINS, 1, 1), trainer_errors=2),
        LOST_AND_FAILED,
        OpenGeneration(nodes=(node(0, CRASHED), node(1, CRASHED)), lost=(TAKEN,)),
    ),
    "after a notice nobody waits until the machine is gone": row(
        TRAINS, SAVED, OpenGeneration(nodes=(node(0, STOPPED), node(1, STOPPED)), lost=(LEAVING,))
    ),
    "what still boots is not waited for": row(
        _with_refills(TRAINS, 1, 60),
        replace(LOST_AND_STOPPED, scale_set=machines(running=3)),
        OpenGeneration(nodes=(node(0, STOPPED), node(1, STOPPED)), lost=(TAKEN,)),
    ),
    "the first generation begins without a machine that was taken at once": row(
        _of_three(attempt(STARTING)),
        AttemptView(scale_set=machines(running=2), nodes=[node(0, READY, 0), node(1, READY, 0)]),
        OpenGeneration(nodes=(node(0, READY, 0), node(1, READY, 0))),
    ),
    "a machine that is missing is asked for": row(TRAINS, ON_TWO, RefillScaleSet()),
    "not while one is under way": row(
        TRAINS, replace(ON_TWO, scale_set=machines(CREATING, running=2)), RequeueAttempt()
    ),
    "after a refusal not before a while has passed": row(
        _with_refills(TRAINS, 1, 14), ON_TWO, RequeueAttempt()
    ),
    "a refusal does not stop survivors, and is asked again": row(
        _with_refills(TRAINS, 5, 301),
        replace(ON_TWO, scale_set=machines(BROKEN, running=2)),
        RefillScaleSet(),
    ),
    "not for a job that ends before it could help": row(
        TRAINS,
        replace(ON_TWO, outlook=GrowthOutlook(remaining=100.0, arrival=200.0)),
        RequeueAttempt(),
    ),
    "not when the cloud does not answer": row(
        TRAINS, replace(ON_TWO, cloud_unreachable=True), RequeueAttempt()
    ),
    "a machine that has come joins at a checkpoint": row(TRAINS, WITH_NEW, GROWING),
    "not where that does not pay": row(
        TRAINS, replace(WITH_NEW, outlook=SHORT_LIFE), RequeueAttempt()
    ),
    "not before the generation has done a step": row(
        TRAINS, replace(WITH_NEW, stepped=False), RequeueAttempt()
    ),
    "not one that has fallen silent": row(
        TRAINS,
        replace(WITH_NEW, nodes=[*ON_TWO.nodes, replace(NEW, quiet=2 * MINUTE)]),
        RequeueAttempt(),
    ),
    "a join that is begun is ended, whatever it pays by then": row(
        TRAINS, halted(replace(WITH_NEW, outlook=SHORT_LIFE), SAVE_AND_STOP, SECOND), GROWING
    ),
    "when all have saved the new one is a member": row(
        TRAINS,
        replace(WITH_NEW, nodes=[node(0, STOPPED), node(1, STOPPED), NEW]),
        OpenGeneration(nodes=(node(0, STOPPED), node(1, STOPPED), NEW)),
    ),
    "one that hangs is no member, whatever its name: its seat is the lively one's": row(
        TRAINS,
        replace(WITH_NEW, nodes=[node(0, STOPPED), node(1, STOPPED), HUNG, NEW]),
        OpenGeneration(nodes=(node(0, STOPPED), node(1, STOPPED), NEW)),
    ),
    "a machine that has not joined in half an hour is given back": row(
        TRAINS, replace(ON_TWO, scale_set=FULL_OF_OLD), RefillScaleSet(useless=("v2",))
    ),
    "so is one that waits to join and hangs": row(
        TRAINS,
        replace(ON_TWO, scale_set=FULL_OF_OLD, nodes=[*ON_TWO.nodes, HUNG]),
        RefillScaleSet(useless=("v2",)),
    ),
    "but not before a look that is deferred": row(
        TRAINS, replace(ON_TWO, scale_set=FULL_OF_OLD, cloud_unreachable=True), RequeueAttempt()
    ),
    "and is not asked to go again while Azure deletes it": row(
        replace(TRAINS, refilled_at=NOW - MINUTE),
        replace(ON_TWO, scale_set=FULL_OF_OLD),
        RequeueAttempt(),
    ),
    "but again if Azure has not": row(
        replace(TRAINS, refilled_at=NOW - 2 * MINUTE),
        replace(ON_TWO, scale_set=FULL_OF_OLD),
        RefillScaleSet(useless=("v2",)),
    ),
    "even where no other would be of use any more": row(
        TRAINS,
        replace(
            ON_TWO, scale_set=FULL_OF_OLD, outlook=GrowthOutlook(remaining=100.0, arrival=200.0)
        ),
        RefillScaleSet(useless=("v2",)),
    ),
    "a machine that still boots is waited for": row(
        TRAINS,
        replace(ON_TWO, scale_set=machines(running=3, created_at=NOW - 29 * MINUTE)),
        RequeueAttempt(),
    ),
    "so is one that could not register while the service was away": row(
        TRAINS,
        replace(ON_TWO, scale_set=FULL_OF_OLD, awake_since=NOW - 29 * MINUTE),
        RequeueAttempt(),
    ),
    "one that waits to join until it pays is of use": row(
        TRAINS,
        replace(
            ON_TWO,
            scale_set=FULL_OF_OLD,
            nodes=[*ON_TWO.nodes, node(2, READY, 0)],
            outlook=SHORT_LIFE,
        ),
        RequeueAttempt(),
    ),
    "too few of them end the attempt": row(
        TRAINS,
        ONE_LEFT,
        MoveAttempt(
            to=TERMINATING,
            outcome=Outcome.EVICTED,
            reason="2 of 3 instances evicted without notice; fewer than 2 are left",
        ),
    ),
}


@pytest.mark.parametrize(("attempt_", "view", "step"), RULES.values(), ids=RULES)
def test_rule(attempt_: Attempt, view: AttemptView, step: AttemptStep) -> None:
    assert next_step(attempt_, view, NOW, PACE) == step


@pytest.mark.parametrize("rows", [1, 8, 12, 60, 64])
@pytest.mark.parametrize("micro_batch", [1, 2, 4])
@pytest.mark.parametrize("processes", [1, 8])
def test_the_service_counts_micro_steps_as_the_trainer_does(
    rows: int, micro_batch: int, processes: int
) -> None:
    batch = StepBatch(rows=rows, rows_per_node=micro_batch * processes)

    for nodes in range(1, 9):
        assert batch.micro_steps(nodes) == micro_steps(rows, micro_batch, nodes * processes)


@pytest.mark.parametrize("nodes", [2, 3, 4, 7])
@pytest.mark.parametrize("rows_per_node", [1, 3, 16])
def test_a_batch_that_divides_evenly_is_always_allowed_and_the_one_advised_admits_fewer_nodes(
    nodes: int, rows_per_node: int
) -> None:
    for rounds in (1, 2, 5):
        batch = StepBatch(rows=nodes * rows_per_node * rounds, rows_per_node=rows_per_node)
        assert batch.admits(nodes)
        for least in range(1, nodes):
            rows = smallest_elastic_batch(batch, min_nodes=least, nodes=nodes)
            chosen = StepBatch(rows=rows, rows_per_node=rows_per_node)
            assert rows >= batch.rows
            assert rows % (nodes * rows_per_node) == 0
            assert len(allowed_node_counts(chosen, min_nodes=least, nodes=nodes)) > 1


def test_no_node_that_is_allowed_is_there_for_nothing() -> None:
    batch = StepBatch(rows=64, rows_per_node=16)

    assert allowed_node_counts(batch, min_nodes=1, nodes=4) == (1, 2, 4)
    assert [largest_count((1, 2, 4), n) for n in range(6)] == [0, 1, 2, 2, 4, 4]


@pytest.mark.parametrize("nodes", [2, 8, 32])
def test_one_node_more_pays_when_the_horizon_is_longer_than_as_many_restarts_as_nodes(
    nodes: int,
) -> None:
    even = StepBatch(rows=nodes * (nodes - 1) * 8, rows_per_node=1)
    for horizon in ("remaining", "disruption", "next_join"):
        just = GrowthOutlook(restart=118.0, **{horizon: nodes * 118.0})
        outlook = GrowthOutlook(restart=118.0, **{horizon: nodes * 118.0 + 1})

        assert not is_growth_worthwhile(even, nodes - 1, nodes, just)
        assert is_growth_worthwhile(even, nodes - 1, nodes, outlook)


def test_a_machine_is_asked_for_only_if_it_comes_in_time() -> None:
    ahead = GrowthOutlook(remaining=500.0, restart=20.0, arrival=300.0)

    assert is_request_worthwhile(BATCH, 2, 3, ahead)
    assert not is_request_worthwhile(BATCH, 2, 3, replace(ahead, arrival=450.0))
    assert is_request_worthwhile(BATCH, 2, 3, replace(ahead, remaining=math.inf))


def test_generations_that_lost_a_machine_are_not_held_against_the_job() -> None:
    on_two = replace(THREE, number=2, members=THREE.members[:2])

    assert count_without_loss([THREE, on_two], LOST.nodes) == 1
    assert count_without_loss([THREE, on_two], SAVED.nodes) == 1
    assert count_without_loss([THREE, on_two], ALL.nodes) == 2


def test_no_machine_is_asked_for_once_an_attempt_is_to_end() -> None:
    assert is_refill_due(TRAINS, ON_TWO, NOW)
    assert not any(
        is_refill_due(replace(TRAINS, stop_as=stop_as), ON_TWO, NOW) for stop_as in Outcome
    )
