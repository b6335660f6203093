"""What becomes of an attempt to which Azure gives its machines one after the other, or not all."""

from dataclasses import replace
from datetime import timedelta

import pytest

from service.domain.cloud.fleet import ScaleSetFailure
from service.domain.lifecycle.attempt import (
    Attempt,
    AttemptStep,
    AttemptView,
    MoveAttempt,
    OpenGeneration,
    RefillScaleSet,
    RequeueAttempt,
)
from service.domain.lifecycle.attempt_steps import next_step
from service.domain.lifecycle.elastic import STRAGGLER_TIMEOUT, ElasticNodes, StepBatch
from service.domain.lifecycle.generation import NodeView
from service.domain.states import Outcome
from tests.unit.attempts.attempt_facts import (
    BROKEN,
    CREATING,
    IS_READY,
    MINUTE,
    NOW,
    PACE,
    PROVISIONING,
    READY,
    SECOND,
    STARTING,
    TERMINATING,
    attempt,
    machines,
    node,
)

COUNTS = tuple(range(4, 9))
RIGID = replace(attempt(PROVISIONING), instance_count=8)
ELASTIC = replace(
    RIGID,
    elastic=ElasticNodes(
        min_nodes=4, node_counts=COUNTS, batch=StepBatch(rows=840, rows_per_node=1)
    ),
)
STARTS = replace(ELASTIC, state=STARTING)
ASKED = replace(RIGID, refills=1, refilled_at=NOW - 14 * SECOND)
BEGINS, FEW = MoveAttempt(to=STARTING), MoveAttempt(to=STARTING, reason="7 of 8 machines")
MISCONFIGURED = ScaleSetFailure.MISCONFIGURED
TRANSIENT = ScaleSetFailure.TRANSIENT
NO_ROOM = ScaleSetFailure.NO_CAPACITY


def _seven(failure: ScaleSetFailure, code: str, running: int = 7, stopped: int = 0) -> AttemptView:
    return AttemptView(
        scale_set=machines(BROKEN, running, stopped, error_code=code, failure=failure)
    )


def _end(outcome: Outcome, reason: str) -> MoveAttempt:
    return MoveAttempt(to=TERMINATING, outcome=outcome, reason=reason)


def _ready(count: int, waiting: timedelta = timedelta(0)) -> list[NodeView]:
    return [replace(node(rank, READY, 0), waiting=waiting) for rank in range(count)]


def _come(running: int, nodes: list[NodeView], *, expects_more: bool = True) -> AttemptView:
    return AttemptView(
        scale_set=machines(CREATING if expects_more else IS_READY, running), nodes=nodes
    )


row = pytest.param
RULES = {
    "nobody waits for the eighth where a machine says that none can boot": row(
        RIGID,
        replace(_come(7, []), cannot_boot="The machines cannot boot: no such image"),
        _end(Outcome.UNRESPONSIVE, "The machines cannot boot: no such image"),
    ),
    "for as long as provisioning may take": row(
        replace(RIGID, since=NOW - 40 * MINUTE), _come(7, []), RequeueAttempt()
    ),
    "and no longer": row(
        replace(RIGID, since=NOW - 40 * MINUTE - SECOND),
        _come(7, []),
        _end(Outcome.NO_CAPACITY, "provisioning for 40 min"),
    ),
    "when the eighth comes the attempt starts": row(RIGID, _come(8, []), BEGINS),
    "the missing one is asked for again when there is no room": row(
        RIGID, _seven(NO_ROOM, "AllocationFailed"), RefillScaleSet()
    ),
    "so it is when Azure fails": row(
        RIGID, _seven(TRANSIENT, "NetworkingInternalOperationError", stopped=1), RefillScaleSet()
    ),
    "but not at once after it was asked for": row(
        ASKED, _seven(NO_ROOM, "AllocationFailed"), RequeueAttempt()
    ),
    "then again": row(
        replace(ASKED, refilled_at=NOW - 15 * SECOND),
        _seven(NO_ROOM, "AllocationFailed"),
        RefillScaleSet(),
    ),
    "what did not run is deleted first, and the set is no whole one then": row(
        replace(ASKED, refilled_at=NOW - 15 * SECOND),
        _come(7, [], expects_more=False),
        RefillScaleSet(),
    ),
    "a set that was whole and lost one at once counts as evicted": row(
        RIGID, _come(7, [], expects_more=False), FEW
    ),
    "a set that failed with all its machines running starts": row(
        RIGID, _seven(TRANSIENT, "OSProvisioningTimedOut", running=8), BEGINS
    ),
    "so does one whose extension failed": row(
        RIGID, _seven(MISCONFIGURED, "VMExtensionProvisioningError", running=8), BEGINS
    ),
    "without any machine there is no room": row(
        RIGID,
        _seven(NO_ROOM, "AllocationFailed", running=0),
        _end(Outcome.NO_CAPACITY, "AllocationFailed"),
    ),
    "or Azure failed, which is no lack of room": row(
        RIGID,
        _seven(TRANSIENT, "InternalExecutionError", running=0),
        _end(Outcome.PROVISIONING_FAILED, "InternalExecutionError"),
    ),
    "what a person must mend is not asked for again": row(
        RIGID,
        _seven(MISCONFIGURED, "PlatformImageNotFound"),
        _end(Outcome.MISCONFIGURED, "PlatformImageNotFound"),
    ),
    "what is refused until a person acts ends so when the time is over": row(
        replace(RIGID, since=NOW - 41 * MINUTE),
        AttemptView(scale_set=None, misconfigured="AuthorizationFailed: no role."),
        _end(Outcome.MISCONFIGURED, "AuthorizationFailed: no role."),
    ),
    "an elastic job starts with the seven": row(ELASTIC, _come(7, []), FEW),
    "also if no more will come": row(ELASTIC, _seven(NO_ROOM, "AllocationFailed"), FEW),
    "not with fewer than it needs": row(ELASTIC, _come(3, []), RequeueAttempt()),
    "those are kept as well, and the rest is asked for": row(
        ELASTIC, _seven(NO_ROOM, "AllocationFailed", running=3), RefillScaleSet()
    ),
    "registered, enough of them wait for the rest": row(
        STARTS, _come(7, _ready(7)), RequeueAttempt()
    ),
    "for a short time": row(
        STARTS, _come(7, _ready(7, STRAGGLER_TIMEOUT - SECOND)), RequeueAttempt()
    ),
    "then they train": row(
        STARTS,
        _come(7, _ready(7, STRAGGLER_TIMEOUT)),
        OpenGeneration(nodes=tuple(_ready(7, STRAGGLER_TIMEOUT))),
    ),
    "without one that runs and has not registered either": row(
        STARTS,
        _come(8, _ready(4, STRAGGLER_TIMEOUT), expects_more=False),
        OpenGeneration(nodes=tuple(_ready(4, STRAGGLER_TIMEOUT))),
    ),
    "the time counts from when enough of them had registered": row(
        STARTS, _come(8, [*_ready(3, 10 * MINUTE), *_ready(5)[3:]]), RequeueAttempt()
    ),
    "all eight do not wait": row(
        STARTS, _come(8, _ready(8)), OpenGeneration(nodes=tuple(_ready(8)))
    ),
    "seven do not wait where no more is being made, and the rest is asked for first": row(
        STARTS, _come(7, _ready(7), expects_more=False), OpenGeneration(nodes=tuple(_ready(7)))
    ),
    "a rigid job waits for all, however long the others have": row(
        replace(RIGID, state=STARTING), _come(8, _ready(7, 20 * MINUTE)), RequeueAttempt()
    ),
}


@pytest.mark.parametrize(("attempt_", "view", "step"), RULES.values(), ids=RULES)
def test_rule(attempt_: Attempt, view: AttemptView, step: AttemptStep) -> None:
    assert next_step(attempt_, view, NOW, PACE) == step


def test_how_long_provisioning_may_take_is_a_setting() -> None:
    overdue = replace(RIGID, since=NOW - 21 * MINUTE)
    short = replace(PACE, provisioning=20 * MINUTE)

    assert next_step(overdue, _come(7, []), NOW, PACE) == RequeueAttempt()
    assert isinstance(next_step(overdue, _come(7, []), NOW, short), MoveAttempt)
