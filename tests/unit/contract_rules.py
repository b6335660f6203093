"""The rules that the simulated world runs by, and the faults that can be planted in them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from service.domain.lifecycle import generation, node
from service.domain.lifecycle.generation import MembershipStep, NodeView, Open
from service.domain.lifecycle.node import Ignored, NodeRecord, StaleEpoch
from trainer.contract import (
    Committed,
    Directive,
    Generation,
    Head,
    Heartbeat,
    Registration,
)
from trainer.supervisor.control import node_state as supervised
from trainer.supervisor.control.node_state import NodeState, Reaction


def admitted(head: Head, entry: Committed) -> Head:
    """HEAD with one more entry, or StaleGeneration."""
    return head.with_model(entry) if entry.kind == "final" else head.with_checkpoint(entry)


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The real pure machines; a fault replaces one of them."""

    directed: Callable[[NodeState, Directive], Reaction] = supervised.on_directive
    registered: Callable[[NodeRecord | None, Registration, int], NodeRecord] = node.registered
    heard: Callable[[NodeRecord, Heartbeat, float], NodeRecord | Ignored | StaleEpoch] = node.heard
    next_membership: Callable[[Generation | None, Sequence[NodeView], int], MembershipStep] = (
        generation.next_membership
    )
    admitted: Callable[[Head, Committed], Head] = admitted
    head_first: bool = True  # take HEAD, then write the generation row
    compare_head: bool = True  # every write of HEAD carries If-Match
    write_once: bool = True  # files of a checkpoint are put with If-None-Match
    saves_in_time: bool = True  # a trainer that does not save in time is killed
    number_late: bool = False  # the next number is asked for after the decision
    model_first: bool = True  # look for the model in HEAD before a generation is opened


def _unchecked(head: Head, entry: Committed) -> Head:
    if entry.kind == "final":
        return replace(head, model=entry)
    return replace(head, checkpoints=(*head.checkpoints, entry))


def _impatient(
    current: Generation | None, nodes: Sequence[NodeView], wanted: int
) -> MembershipStep:
    """Opens as soon as one member is lost, whatever the survivors still run."""
    step = generation.next_membership(current, nodes, wanted)
    alive = [n for n in nodes if n.present and not n.evicting]
    if isinstance(step, generation.Halt) and len(alive) >= wanted:
        return Open(nodes=tuple(alive[:wanted]))
    return step


def _replayed(known: NodeState, directive: Directive) -> Reaction:
    """Takes every directive for a new one."""
    forgetful = replace(known, directive=0, generation=min(known.generation, directive.number - 1))
    return supervised.on_directive(forgetful, directive)


def _registered_twice(
    record: NodeRecord | None, registration: Registration, current: int
) -> NodeRecord:
    """Makes a node of every registration."""
    fresh = node.registered(None, registration, current)
    return replace(fresh, node_id=f"{fresh.node_id}-{record.node_id}") if record else fresh


def _start_kept(record: NodeRecord | None, registration: Registration, current: int) -> NodeRecord:
    """Leaves a START standing for a new boot, whose disk may be empty."""
    after = node.registered(record, registration, current)
    if record is None or after == record:
        return after
    kind, seq = record.directive_kind, record.directive_seq
    return replace(after, directive_kind=kind, directive_seq=seq)


def _unordered(
    record: NodeRecord, heartbeat: Heartbeat, now: float
) -> NodeRecord | Ignored | StaleEpoch:
    """Believes whatever arrives last."""
    return node.heard(replace(record, epoch=heartbeat.epoch, heartbeat_seq=0), heartbeat, now)


# Each fault with the promise that it breaks first.
FAULTS: dict[str, tuple[Rules, set[str]]] = {
    "HEAD is not checked": (Rules(admitted=_unchecked), {"a stale generation commits"}),
    "a generation is opened before the survivors stopped": (
        Rules(next_membership=_impatient),
        {"two generations run"},
    ),
    "a directive is replayed": (
        Rules(directed=_replayed),
        {"a generation is started twice on a node", "two generations run"},
    ),
    "a registration is doubled": (Rules(registered=_registered_twice), {"two nodes of one VM"}),
    "a heartbeat is reordered": (Rules(heard=_unordered), {"older news is believed"}),
    "the row is written before HEAD is taken": (
        Rules(head_first=False),
        {"opened before HEAD was taken"},
    ),
    "HEAD is written without If-Match": (
        Rules(compare_head=False),
        {"HEAD goes back", "a commit is lost", "a stale generation commits", "progress goes back"},
    ),
    "a file of a checkpoint is written again": (
        Rules(write_once=False),
        {"a torn checkpoint"},
    ),
    "a new boot is given the START of the last one": (
        Rules(registered=_start_kept),
        {"a generation is started twice on a node"},
    ),
    "a trainer that cannot save is waited for": (Rules(saves_in_time=False), {"no end"}),
    "only rank 0's word says that the model is there": (
        Rules(model_first=False),
        {"a finished job is trained again"},
    ),
}
