"""An attempt and what may be seen of it, for tests of its decisions."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from service.domain.cloud.fleet import Instance, Offering, ScaleSet, ScaleSetFailure, ScaleSetPhase
from service.domain.lifecycle.attempt import Attempt, AttemptTiming, AttemptView, OpenGeneration
from service.domain.lifecycle.generation import NodeView
from service.domain.states import AttemptState, CapacityType, Outcome
from trainer.contract import DirectiveKind, Generation, Member, NodePhase

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
PACE = AttemptTiming()
PENDING, PROVISIONING, STARTING, RUNNING, TERMINATING, ENDED = AttemptState
INCOMPLETE, CREATING, IS_READY, BROKEN, DELETING = ScaleSetPhase
READY, TRAINS, STOPPED, CRASHED, FINISHED = NodePhase
START, SAVE_AND_STOP, STOP, CARRY_ON = DirectiveKind
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
SPOT = Offering(region="eastus", vm_size="nd", capacity_type=CapacityType.SPOT)


def attempt(
    state: AttemptState,
    *,
    ago: timedelta = timedelta(0),
    outcome: Outcome | None = None,
    stop_as: Outcome | None = None,
    trainer_errors: int = 0,
) -> Attempt:
    return Attempt(
        id="att-1",
        job_id="job",
        number=1,
        state=state,
        since=NOW - ago,
        offering=SPOT,
        instance_count=2,
        outcome=outcome,
        stop_as=stop_as,
        trainer_errors=trainer_errors,
    )


def machines(
    phase: ScaleSetPhase = IS_READY,
    running: int = 2,
    stopped: int = 0,
    created_at: datetime | None = None,
    error_code: str = "",
    failure: ScaleSetFailure = ScaleSetFailure.TRANSIENT,
) -> ScaleSet:
    states = [True] * running + [False] * stopped
    instances = [
        Instance(instance_id=str(i), vm_id=f"v{i}", name="", running=on, created_at=created_at)
        for i, on in enumerate(states)
    ]
    return ScaleSet(
        name="rk-1", phase=phase, instances=tuple(instances), error_code=error_code, failure=failure
    )


def node(rank: int, phase: NodePhase = TRAINS, generation: int = 1) -> NodeView:
    return NodeView(
        node_id=f"n{rank}",
        vm_id=f"v{rank}",
        address="",
        phase=phase,
        generation=generation,
        free_port=1,
        present=True,
    )


GENERATION = Generation(
    number=1,
    job_id="job",
    attempt_id="att-1",
    members=tuple(
        Member(node_id=f"n{r}", vm_id=f"v{r}", address="", node_rank=r) for r in range(2)
    ),
    processes_per_node=1,
    master_address="",
    master_port=1,
    checkpoint=None,
    run_spec_sha256="",
)
NONE = AttemptView(scale_set=None)
BOOTED = AttemptView(scale_set=machines())
REGISTERED = replace(BOOTED, nodes=[node(0, READY, 0), node(1, READY, 0)])
TRAINING = replace(
    BOOTED, nodes=[node(0), node(1)], generation=GENERATION, heard_at=NOW, stepped=True
)
GONE = replace(node(1), present=False)
ONE_GONE = replace(TRAINING, scale_set=machines(running=1), nodes=[node(0), GONE])
UNDER_NOTICE = replace(TRAINING, nodes=[node(0), replace(node(1), evicting=True)])
ALL_FAILED = replace(TRAINING, fruitless=1, nodes=[node(0, CRASHED), node(1, CRASHED)])
ALL_STOPPED = replace(TRAINING, nodes=[node(0, STOPPED), node(1, STOPPED)])
NOTICED_AND_STOPPED = replace(
    TRAINING, nodes=[node(0, STOPPED), replace(node(1, STOPPED), evicting=True)]
)
RANK_0_FINISHED = replace(TRAINING, nodes=[node(0, FINISHED), node(1)])


def halted(view: AttemptView, kind: DirectiveKind, ago: timedelta) -> AttemptView:
    return replace(view, halt_kind=kind, halted_at=NOW - ago)


def reopened(view: AttemptView, *, after_error: bool) -> OpenGeneration:
    return OpenGeneration(nodes=tuple(view.nodes), after_error=after_error)
