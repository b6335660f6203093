"""Update the record of one node with each of its messages.

Pure. Messages may come late, twice and in any order, from a supervisor that ended long ago; a
message without news changes nothing, so every handler is idempotent.
"""

from dataclasses import dataclass, replace
from datetime import timedelta
from hashlib import sha256

from service.domain.lifecycle.generation import NodeView
from trainer.contract import DirectiveKind, Heartbeat, NodePhase, Registration

# Of two directives about one generation the higher wins, whatever order they are given in.
_RANK = {
    DirectiveKind.CARRY_ON: 0,
    DirectiveKind.START: 1,
    DirectiveKind.CHECKPOINT_AND_STOP: 2,
    DirectiveKind.STOP: 3,
}


@dataclass(frozen=True, kw_only=True)
class NodeRecord:
    """One row of the nodes table."""

    node_id: str
    attempt_id: str
    vm_id: str
    boot_id: str  # of the supervisor process that registered last
    address: str
    epoch: int = 1
    heartbeat_seq: int = 0  # the highest heard in this epoch
    heard_at: float = 0.0  # when that one came, by the service's clock
    registered_at: float = 0.0  # by the same clock
    phase: NodePhase = NodePhase.READY
    generation: int = 0
    step: int = 0
    free_port: int = 0
    evicting: bool = False
    restarted_in: int = 0
    directive_seq: int = 0
    directive_kind: DirectiveKind = DirectiveKind.CARRY_ON
    directive_number: int = 0
    out_of_memory: bool = False  # in the generation that the phase speaks of
    non_retryable: bool = False  # the same: its error is one that no second try mends
    unhealthy_at: float = 0.0  # when it first said that its machine must be replaced; 0: never

    @property
    def stops(self) -> bool:
        """Return whether it still runs the generation that it was directed to stop."""
        stop = self.directive_kind in (DirectiveKind.CHECKPOINT_AND_STOP, DirectiveKind.STOP)
        is_directed = stop and self.directive_number >= self.generation
        return is_directed and self.phase is NodePhase.RUNNING


@dataclass(frozen=True)
class IgnoredHeartbeat:
    """A heartbeat without news: answered like any other, but nothing is written."""


@dataclass(frozen=True)
class StaleHeartbeat:
    """A heartbeat from before the last registration: 409 "stale_epoch", register again."""


def node_id(attempt_id: str, vm_id: str) -> str:
    """Return the id of a VM in an attempt; it never changes, so registration is idempotent.

    >>> node_id("att-1", "vm-a")
    'node-e18b7ac15e59249d68266b9a08'
    """
    return "node-" + sha256(f"{attempt_id}/{vm_id}".encode()).hexdigest()[:26]


def apply_registration(
    record: NodeRecord | None, registration: Registration, current_generation_number: int
) -> NodeRecord:
    """Return the row after a registration; the same boot again changes nothing.

    A new boot takes away a START, since its disk may have forgotten that it started already.
    Phase and generation stay: only a heartbeat of the new epoch proves that a trainer is gone,
    because this registration may be an older boot's that was held up on its way.
    """
    if record is None:
        return NodeRecord(
            node_id=node_id(registration.attempt_id, registration.vm_id),
            attempt_id=registration.attempt_id,
            vm_id=registration.vm_id,
            boot_id=registration.boot_id,
            address=registration.address,
        )
    if record.boot_id == registration.boot_id:
        return record
    updated = replace(
        record,
        boot_id=registration.boot_id,
        address=registration.address,
        epoch=record.epoch + 1,
        heartbeat_seq=0,
        evicting=False,  # the new boot repeats a notice that still holds
        restarted_in=current_generation_number,
    )
    if record.directive_kind is DirectiveKind.START:
        return apply_directive(updated, DirectiveKind.STOP, record.directive_number)
    return updated


def apply_heartbeat(
    record: NodeRecord, heartbeat: Heartbeat, now: float
) -> NodeRecord | IgnoredHeartbeat | StaleHeartbeat:
    """Return the row after a heartbeat, unless a newer one was applied already."""
    if heartbeat.epoch != record.epoch:
        return StaleHeartbeat()
    if heartbeat.seq <= record.heartbeat_seq:
        return IgnoredHeartbeat()
    return replace(
        record,
        heartbeat_seq=heartbeat.seq,
        heard_at=now,
        phase=heartbeat.phase,
        generation=heartbeat.generation,
        step=heartbeat.step,
        free_port=heartbeat.free_port,
        evicting=record.evicting or heartbeat.eviction is not None,
        out_of_memory=heartbeat.out_of_memory or _was_out_of_memory(record, heartbeat),
        non_retryable=heartbeat.non_retryable,
        unhealthy_at=record.unhealthy_at or (now if heartbeat.unhealthy else 0.0),
    )


def _was_out_of_memory(record: NodeRecord, heartbeat: Heartbeat) -> bool:
    """Return whether this generation already reported it; a restart forgets it."""
    return record.out_of_memory and record.generation == heartbeat.generation


def should_wake_reconciler(before: NodeRecord, after: NodeRecord, heartbeat: Heartbeat) -> bool:
    """Return whether the reconciler must act on the heartbeat.

    The first port makes the node available for training. An eviction notice is no news where the
    node stops already.
    """
    first_step = after.step > 0 and before.step == 0
    previous = (before.phase, before.generation, before.free_port > 0)
    changed = previous != (after.phase, after.generation, after.free_port > 0)
    is_noticed = after.evicting and not before.evicting and not before.stops
    is_unhealthy = after.unhealthy_at > 0 and not before.unhealthy_at
    return changed or is_noticed or is_unhealthy or first_step or bool(heartbeat.committed)


def is_stale(heartbeat: Heartbeat, current_generation_number: int) -> bool:
    """Return whether the node runs a generation with a successor: 409 "stale_generation"."""
    running = heartbeat.phase is NodePhase.RUNNING
    return running and heartbeat.generation < current_generation_number


def apply_directive(record: NodeRecord, kind: DirectiveKind, number: int) -> NodeRecord:
    """Return the row with this directive, unless it has the same, a stronger or newer one.

    A newer generation beats an older one; within one STOP beats CHECKPOINT_AND_STOP beats
    START. So a generation is started once at most, and a late worker takes nothing back.
    """
    current = (record.directive_number, _RANK[record.directive_kind])
    if (number, _RANK[kind]) <= current:
        return record
    return replace(
        record,
        directive_seq=record.directive_seq + 1,
        directive_kind=kind,
        directive_number=number,
    )


def node_view(
    record: NodeRecord,
    present: bool,
    quiet: timedelta = timedelta(0),
    unhealthy_for: timedelta | None = None,
    waiting: timedelta = timedelta(0),
) -> NodeView:
    """Return what the membership rules need; ``present`` is what the cloud reports."""
    return NodeView(
        node_id=record.node_id,
        vm_id=record.vm_id,
        address=record.address,
        phase=record.phase,
        generation=record.generation,
        free_port=record.free_port,
        present=present,
        evicting=record.evicting,
        restarted_in=record.restarted_in,
        quiet=quiet,
        waiting=waiting,
        non_retryable=record.non_retryable,
        unhealthy_for=unhealthy_for,
    )
