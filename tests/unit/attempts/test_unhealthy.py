"""What becomes of an attempt whose machines say that they are unhealthy."""

from dataclasses import replace
from datetime import timedelta

from service.domain.lifecycle.attempt import (
    AttemptView,
    MoveAttempt,
    OpenGeneration,
    RefillScaleSet,
    RequeueAttempt,
)
from service.domain.lifecycle.attempt_steps import next_step
from service.domain.lifecycle.elastic import ElasticNodes, StepBatch
from service.domain.lifecycle.generation import HaltGeneration, NodeView
from service.domain.lifecycle.unhealthy_nodes import MAX_UNHEALTHY
from service.domain.states import AttemptState, Outcome
from tests.unit.attempts.attempt_facts import (
    CRASHED,
    MINUTE,
    NOW,
    PACE,
    READY,
    REGISTERED,
    RUNNING,
    SECOND,
    STARTING,
    STOP,
    TRAINING,
    TRAINS,
    attempt,
    machines,
    node,
)


def ill(view: NodeView, since: timedelta = SECOND, *, present: bool = True) -> NodeView:
    """Return the node after it has reported that its machine is unhealthy."""
    return replace(view, unhealthy_for=since, present=present)


def after(view: AttemptView, *others: NodeView, state: AttemptState = STARTING) -> object:
    """Return the next step of a fixed-size attempt whose nodes after the first are ``others``."""
    view = replace(view, nodes=[*view.nodes[:1], *others])
    return next_step(attempt(state), view, NOW, PACE)


def test_an_unhealthy_machine_is_deleted_before_it_trains_and_another_takes_its_place() -> None:
    assert after(REGISTERED, ill(node(1, READY, 0))) == RefillScaleSet(("v1",))

    deleted = ill(node(1, READY, 0), MINUTE, present=False)
    view = replace(REGISTERED, scale_set=machines(running=1))
    assert after(view, deleted) == RefillScaleSet()

    step = after(REGISTERED, deleted, node(2, READY, 0))
    assert isinstance(step, OpenGeneration)
    assert [n.node_id for n in step.nodes] == ["n0", "n2"]


def test_a_machine_is_kept_while_its_trainer_runs_and_its_failure_stops_the_others() -> None:
    assert after(TRAINING, ill(node(1, TRAINS)), state=RUNNING) == RequeueAttempt()

    step = after(TRAINING, ill(node(1, CRASHED)), state=RUNNING)
    assert step == HaltGeneration(kind=STOP, node_ids=("n0",), reason="a machine's trainer failed")


def test_the_trainer_is_not_blamed_for_the_machine() -> None:
    deleted = ill(node(1, CRASHED), MINUTE, present=False)
    view = replace(TRAINING, fruitless=1, nodes=[node(0, CRASHED), deleted, node(2, READY, 0)])
    step = next_step(attempt(RUNNING, trainer_errors=2), view, NOW, PACE)

    assert isinstance(step, OpenGeneration)
    assert not step.after_error
    assert step.lost == ()  # Azure took none


def test_that_no_healthy_machine_comes_ends_the_attempt_as_if_there_were_none() -> None:
    deleted = ill(node(1, READY, 0), 31 * MINUTE, present=False)
    step = after(replace(REGISTERED, scale_set=machines(running=1)), deleted)

    assert isinstance(step, MoveAttempt)
    assert step.outcome is Outcome.NO_CAPACITY
    assert "no healthy machine came in place of an unhealthy one within 30 min" in step.reason
    step_before = after(REGISTERED, ill(node(1, READY, 0), 31 * MINUTE))
    assert isinstance(step_before, MoveAttempt)
    assert step_before.outcome is Outcome.NO_CAPACITY


def test_the_third_unhealthy_machine_ends_the_attempt() -> None:
    deleted = [ill(node(n, READY, 0), 40 * MINUTE, present=False) for n in range(2, 4)]
    assert len(deleted) == MAX_UNHEALTHY - 1
    step = after(REGISTERED, *deleted, ill(node(1, READY, 0)))

    assert isinstance(step, MoveAttempt)
    assert (step.outcome, step.reason) == (
        Outcome.UNRESPONSIVE,
        "3 unhealthy machines in one attempt",
    )


def test_an_eviction_beside_it_is_an_eviction() -> None:
    step = after(replace(REGISTERED, scale_set=machines(running=0)), ill(node(1), present=False))

    assert isinstance(step, MoveAttempt)
    assert step.outcome is Outcome.EVICTED


ELASTIC = ElasticNodes(min_nodes=1, node_counts=(1, 2), batch=StepBatch(rows=8, rows_per_node=1))


def test_an_elastic_job_goes_on_with_the_rest() -> None:
    view = replace(REGISTERED, nodes=[node(0, READY, 0), ill(node(1, READY, 0))])
    step = next_step(replace(attempt(STARTING), elastic=ELASTIC), view, NOW, PACE)

    assert isinstance(step, OpenGeneration)
    assert [n.node_id for n in step.nodes] == ["n0"]


def test_an_elastic_job_waits_for_another_machine_when_none_is_left() -> None:
    view = replace(REGISTERED, nodes=[ill(node(n, READY, 0)) for n in range(2)])
    step = next_step(replace(attempt(STARTING), elastic=ELASTIC), view, NOW, PACE)

    assert step == RefillScaleSet(("v0", "v1"))


def test_after_three_an_elastic_job_asks_for_no_more() -> None:
    deleted = [ill(node(n, READY, 0), present=False) for n in range(1, 1 + MAX_UNHEALTHY)]
    view = replace(
        TRAINING, scale_set=machines(running=1), nodes=[node(0), *deleted], generation=ALONE
    )
    step = next_step(replace(attempt(RUNNING), elastic=ELASTIC), view, NOW, PACE)

    assert step == RequeueAttempt()


assert TRAINING.generation is not None
ALONE = replace(TRAINING.generation, members=TRAINING.generation.members[:1])
