"""Decide when a generation must be halted, and when the next one may be opened.

Pure. The essential rule: a generation is opened only after every member of the one before has
reported that its trainer is gone, or is gone itself. A silent member blocks; the attempt's time
limits resolve that.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from service.domain.lifecycle.elastic import MAX_QUIET
from trainer.contract import DirectiveKind, Generation, NodePhase

_SETTLED = frozenset({NodePhase.STOPPED, NodePhase.FAILED, NodePhase.FINISHED})


@dataclass(frozen=True, kw_only=True)
class NodeView:
    """What the service knows of one node: its last report, and whether the cloud has it."""

    node_id: str
    vm_id: str
    address: str
    phase: NodePhase
    generation: int  # that the phase speaks of
    free_port: int
    present: bool  # in the cloud's instance list, running
    evicting: bool = False  # it has reported an eviction notice
    restarted_in: int = 0  # the generation that was current when it last registered afresh
    non_retryable: bool = False  # its trainer's error is one that no second try mends
    quiet: timedelta = timedelta(0)  # since it was last heard, as far as it could be heard
    unhealthy_for: timedelta | None = None  # since it said so; None: it is healthy
    waiting: timedelta = timedelta(0)  # since it registered

    @property
    def unhealthy(self) -> bool:
        """Return whether the node has reported that its machine must be replaced."""
        return self.unhealthy_for is not None

    @property
    def stays(self) -> bool:
        """Return whether the machine is healthy, present and not being evicted."""
        return self.present and not self.evicting and not self.unhealthy

    def settled(self, number: int) -> bool:
        """Return whether no trainer of generation ``number`` can run here any more."""
        if not self.present:
            return True
        return self.generation == number and self.phase in _SETTLED

    @property
    def free(self) -> bool:
        """Return whether the node may become a member of a new generation.

        Not before its first heartbeat: only that names a port for the ranks to meet.
        """
        idle = self.phase is not NodePhase.RUNNING
        return self.stays and idle and self.free_port > 0


@dataclass(frozen=True, kw_only=True)
class KeepGeneration:
    """Do nothing."""


@dataclass(frozen=True, kw_only=True)
class HaltGeneration:
    """Direct these members to stop the generation."""

    kind: DirectiveKind
    node_ids: tuple[str, ...]
    reason: str


@dataclass(frozen=True, kw_only=True)
class NextMembers:
    """Open the next generation with these nodes, in rank order."""

    nodes: tuple[NodeView, ...]


MembershipStep = KeepGeneration | HaltGeneration | NextMembers
LOSS_REASONS = (  # ways to lose a machine's part; what comes first brings about what comes after
    "a machine is gone",
    "a machine's supervisor was started again",
    "a machine's trainer failed",
    "a machine has gone on without this generation",
)


def next_membership(
    current: Generation | None, nodes: Sequence[NodeView], target_count: int
) -> MembershipStep:
    """Decide what to do about the current generation; the next needs ``target_count`` nodes.

    If more are free, former members are preferred: they have the data and the checkpoint already.
    """
    if current is not None and not is_settled(current, nodes):
        return _check_members(current, nodes)
    free = _candidates(current, nodes)
    if len(free) < target_count:
        return KeepGeneration()
    return NextMembers(nodes=tuple(sorted(free[:target_count], key=lambda n: n.vm_id)))


def _candidates(current: Generation | None, nodes: Sequence[NodeView]) -> list[NodeView]:
    """Return free nodes, former members first; a newcomer must have been heard recently."""
    if current is None:
        return sorted((n for n in nodes if n.free), key=lambda n: n.vm_id)
    before = (n for n in members_of(current, nodes) if n.free)
    return [
        *sorted(before, key=lambda n: n.vm_id),
        *sorted(joining_nodes(current, nodes), key=lambda n: n.vm_id),
    ]


def is_settled(current: Generation, nodes: Sequence[NodeView]) -> bool:
    """Return whether no trainer of ``current`` can run on any of its members any more."""
    return all(n.settled(current.number) for n in members_of(current, nodes))


def is_finished(current: Generation, nodes: Sequence[NodeView]) -> bool:
    """Return whether rank 0 has reported the last step done and the model committed."""
    rank0 = current.members[0].node_id
    return any(
        n.node_id == rank0 and n.generation == current.number and n.phase is NodePhase.FINISHED
        for n in nodes
    )


def is_trainers_fault(current: Generation, nodes: Sequence[NodeView]) -> bool:
    """Return whether the trainer failed by itself.

    When a supervisor restarts or Azure takes a machine, the trainer there ends with it, and those
    of the other members fail because they lost a peer.
    """
    members = members_of(current, nodes)
    failed = any(n.generation == current.number and n.phase is NodePhase.FAILED for n in members)
    return failed and all(n.stays and n.restarted_in < current.number for n in members)


def is_not_retryable(current: Generation, nodes: Sequence[NodeView]) -> bool:
    """Return whether a member's trainer failed in a way that every retry would repeat."""
    members = members_of(current, nodes)
    return any(n.non_retryable and n.generation == current.number for n in members)


def count_without_loss(generations: Iterable[Generation], nodes: Sequence[NodeView]) -> int:
    """Return how many of these generations lost no machine."""
    lost_ids = {n.node_id for n in nodes if not n.stays}
    return sum(not any(m.node_id in lost_ids for m in g.members) for g in generations)


def members_of(current: Generation, nodes: Sequence[NodeView]) -> list[NodeView]:
    """Return the views of the members of ``current``."""
    ids = {m.node_id for m in current.members}
    return [n for n in nodes if n.node_id in ids]


def non_members(current: Generation, nodes: Sequence[NodeView]) -> list[NodeView]:
    """Return the nodes that are no members of ``current``."""
    ids = {m.node_id for m in current.members}
    return [n for n in nodes if n.node_id not in ids]


def joining_nodes(current: Generation, nodes: Sequence[NodeView]) -> list[NodeView]:
    """Return the nodes that could join the next generation."""
    return [n for n in non_members(current, nodes) if n.free and n.quiet <= MAX_QUIET]


def continuing_count(current: Generation, nodes: Sequence[NodeView]) -> int:
    """Return the number of nodes available for the next generation, without booting ones."""
    count = sum(n.stays for n in members_of(current, nodes))
    return count + len(joining_nodes(current, nodes))


def halt_members(
    current: Generation, nodes: Sequence[NodeView], kind: DirectiveKind, reason: str
) -> HaltGeneration:
    """Halt every member of ``current`` that has not settled yet."""
    open_ids = [n.node_id for n in members_of(current, nodes) if not n.settled(current.number)]
    return HaltGeneration(kind=kind, node_ids=tuple(open_ids), reason=reason)


def _check_members(current: Generation, nodes: Sequence[NodeView]) -> MembershipStep:
    """Halt a live generation as soon as one of its members cannot continue."""
    if is_finished(current, nodes):
        return KeepGeneration()  # the others are about to say so too
    through = (current.number, NodePhase.FINISHED)  # these wait for rank 0's model, there or gone
    members = [n for n in members_of(current, nodes) if (n.generation, n.phase) != through]
    if reasons := {why for n in members if (why := _loss_reason(n, current.number))}:
        return halt_members(
            current, nodes, DirectiveKind.STOP, min(reasons, key=LOSS_REASONS.index)
        )
    if any(n.evicting for n in members):
        kind = DirectiveKind.CHECKPOINT_AND_STOP
        return halt_members(current, nodes, kind, "Azure announced an eviction")
    if any(n.settled(current.number) for n in members):
        kind = DirectiveKind.CHECKPOINT_AND_STOP
        return halt_members(current, nodes, kind, "a machine has stopped")
    return KeepGeneration()


def _loss_reason(node: NodeView, number: int) -> str:
    """Return why the node's part of generation ``number`` is lost without a save; "" if not."""
    gone, restarted, failed, elsewhere = LOSS_REASONS
    if not node.present:
        return gone
    if node.restarted_in >= number:
        return restarted
    if node.generation == number and node.phase is NodePhase.FAILED:
        return failed
    return elsewhere if node.generation > number else ""
