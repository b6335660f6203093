"""Membership: when a generation must be halted, and when the next one may be opened.

Pure. The rule that matters: a generation is opened only after every member of the one
before has said that its trainer is gone, or is gone itself. Whoever is merely silent
blocks; the attempt's time limits deal with that.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from service.domain.lifecycle.elastic import LIVELY
from trainer.contract import DirectiveKind, Generation, NodePhase

_SETTLED = frozenset({NodePhase.STOPPED, NodePhase.FAILED, NodePhase.FINISHED})


@dataclass(frozen=True, kw_only=True)
class NodeView:
    """What the service knows of one node: what it said last, and whether the cloud still has it."""

    node_id: str
    vm_id: str
    address: str
    phase: NodePhase
    generation: int  # that the phase speaks of
    free_port: int
    present: bool  # in the cloud's instance list, running
    evicting: bool = False  # it has reported an eviction notice
    restarted_in: int = 0  # the generation that was current when it last registered afresh
    hopeless: bool = False  # its trainer's error is one that no second try mends
    quiet: timedelta = timedelta(0)  # since it was last heard, as far as it could be heard
    unhealthy_for: timedelta | None = None  # since it said so; None: it is healthy
    waiting: timedelta = timedelta(0)  # since it registered

    @property
    def unhealthy(self) -> bool:
        """True once the node has said that its machine must be replaced."""
        return self.unhealthy_for is not None

    @property
    def stays(self) -> bool:
        """True when the machine is healthy, and Azure neither has taken it nor will."""
        return self.present and not self.evicting and not self.unhealthy

    def settled(self, number: int) -> bool:
        """True when no trainer of generation ``number`` can run here any more."""
        if not self.present:
            return True
        return self.generation == number and self.phase in _SETTLED

    @property
    def free(self) -> bool:
        """True when the node may become a member of a new generation.

        Not before its first heartbeat: only that names a port for the ranks to meet.
        """
        idle = self.phase is not NodePhase.RUNNING
        return self.stays and idle and self.free_port > 0


@dataclass(frozen=True, kw_only=True)
class Hold:
    """Nothing to do."""


@dataclass(frozen=True, kw_only=True)
class Halt:
    """Direct these members to stop the generation."""

    kind: DirectiveKind
    node_ids: tuple[str, ...]
    reason: str


@dataclass(frozen=True, kw_only=True)
class Open:
    """Open the next generation with these nodes, in rank order."""

    nodes: tuple[NodeView, ...]


MembershipStep = Hold | Halt | Open
LOST = (  # ways to lose a machine's part; what comes first brings about what comes after
    "a machine is gone",
    "a machine's supervisor was started again",
    "a machine's trainer failed",
    "a machine has gone on without this generation",
)


def next_membership(
    current: Generation | None, nodes: Sequence[NodeView], wanted: int
) -> MembershipStep:
    """Decide what to do about an attempt's current generation; ``wanted`` nodes make the next.

    Where more are free, those go on that have the data and the checkpoint already.
    """
    if current is not None and not is_settled(current, nodes):
        return _watch(current, nodes)
    free = _candidates(current, nodes)
    if len(free) < wanted:
        return Hold()
    return Open(nodes=tuple(sorted(free[:wanted], key=lambda n: n.vm_id)))


def _candidates(current: Generation | None, nodes: Sequence[NodeView]) -> list[NodeView]:
    """Who may be a member, those first that were: a newcomer must also have been heard lately."""
    if current is None:
        return sorted((n for n in nodes if n.free), key=lambda n: n.vm_id)
    before = (n for n in members_of(current, nodes) if n.free)
    return [
        *sorted(before, key=lambda n: n.vm_id),
        *sorted(joining(current, nodes), key=lambda n: n.vm_id),
    ]


def is_settled(current: Generation, nodes: Sequence[NodeView]) -> bool:
    """True when no trainer of ``current`` can run on any of its members any more."""
    return all(n.settled(current.number) for n in members_of(current, nodes))


def is_finished(current: Generation, nodes: Sequence[NodeView]) -> bool:
    """True when rank 0 has said that the last step is done and HEAD names the model."""
    rank0 = current.members[0].node_id
    return any(
        n.node_id == rank0 and n.generation == current.number and n.phase is NodePhase.FINISHED
        for n in nodes
    )


def is_trainers_fault(current: Generation, nodes: Sequence[NodeView]) -> bool:
    """True when the trainer failed by itself.

    When a supervisor has started anew or Azure has taken a machine, the trainer there was ended
    with it, and those of the other members failed because theirs had lost a peer.
    """
    members = members_of(current, nodes)
    failed = any(n.generation == current.number and n.phase is NodePhase.FAILED for n in members)
    return failed and all(n.stays and n.restarted_in < current.number for n in members)


def is_hopeless(current: Generation, nodes: Sequence[NodeView]) -> bool:
    """True when a member's trainer has met what would be met again, whatever the machines."""
    members = members_of(current, nodes)
    return any(n.hopeless and n.generation == current.number for n in members)


def without_excuse(generations: Iterable[Generation], nodes: Sequence[NodeView]) -> int:
    """How many of these have lost no machine: nobody but the run itself was in their way."""
    taken = {n.node_id for n in nodes if not n.stays}
    return sum(not any(m.node_id in taken for m in g.members) for g in generations)


def members_of(current: Generation, nodes: Sequence[NodeView]) -> list[NodeView]:
    """The views of the members of ``current``."""
    ids = {m.node_id for m in current.members}
    return [n for n in nodes if n.node_id in ids]


def strangers_to(current: Generation, nodes: Sequence[NodeView]) -> list[NodeView]:
    """Nodes that ``current`` trains without."""
    ids = {m.node_id for m in current.members}
    return [n for n in nodes if n.node_id not in ids]


def joining(current: Generation, nodes: Sequence[NodeView]) -> list[NodeView]:
    """Nodes that could train along from the next generation on."""
    return [n for n in strangers_to(current, nodes) if n.free and n.quiet <= LIVELY]


def going_on(current: Generation, nodes: Sequence[NodeView]) -> int:
    """How many nodes are there for the next generation; nobody waits for what still boots."""
    staying = sum(n.stays for n in members_of(current, nodes))
    return staying + len(joining(current, nodes))


def halt(current: Generation, nodes: Sequence[NodeView], kind: DirectiveKind, reason: str) -> Halt:
    """Halt every member of ``current`` that has not settled yet."""
    open_ids = [n.node_id for n in members_of(current, nodes) if not n.settled(current.number)]
    return Halt(kind=kind, node_ids=tuple(open_ids), reason=reason)


def _watch(current: Generation, nodes: Sequence[NodeView]) -> MembershipStep:
    """Halt a live generation as soon as one of its members cannot go on."""
    if is_finished(current, nodes):
        return Hold()  # the others are about to say so too
    through = (current.number, NodePhase.FINISHED)  # these wait for rank 0's model, there or gone
    members = [n for n in members_of(current, nodes) if (n.generation, n.phase) != through]
    if lost := {why for n in members if (why := _lost(n, current.number))}:
        return halt(current, nodes, DirectiveKind.STOP, min(lost, key=LOST.index))
    if any(n.evicting for n in members):
        kind = DirectiveKind.CHECKPOINT_AND_STOP
        return halt(current, nodes, kind, "Azure announced an eviction")
    if any(n.settled(current.number) for n in members):
        kind = DirectiveKind.CHECKPOINT_AND_STOP
        return halt(current, nodes, kind, "a machine has stopped")
    return Hold()


def _lost(node: NodeView, number: int) -> str:
    """Why the node's part of generation ``number`` is gone without a save of its own, if it is."""
    gone, restarted, failed, elsewhere = LOST
    if not node.present:
        return gone
    if node.restarted_in >= number:
        return restarted
    if node.generation == number and node.phase is NodePhase.FAILED:
        return failed
    return elsewhere if node.generation > number else ""
