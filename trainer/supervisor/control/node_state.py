"""The node's state machine, pure: each event maps a state to a new state and effects.

The supervisor writes the new state to its disk before it carries out the effects, so a supervisor
that is killed between the two finds out on its next start and never starts a generation twice.
`tests/scenario` runs this state machine against the real service, over a network that loses,
doubles and reorders messages.
"""

from dataclasses import dataclass, replace

from trainer.contract import Directive, DirectiveKind, Generation, Message, NodePhase


@dataclass(frozen=True, kw_only=True)
class NodeState(Message):
    """All that a node must remember across a restart of its supervisor."""

    epoch: int = 0
    directive: int = 0  # the highest directive acted upon; older ones are replays
    generation: int = 0  # the highest generation ever started or stopped here
    phase: NodePhase = NodePhase.READY
    stopping: bool = False  # the trainer was asked to stop and has not ended yet
    evicting: bool = False  # an eviction notice was seen; nothing is started any more


@dataclass(frozen=True, kw_only=True)
class LaunchTrainer:
    """Start the trainer, if HEAD still belongs to this generation."""

    generation: Generation


@dataclass(frozen=True, kw_only=True)
class SaveAndStop:
    """Ask the trainer to save between two steps and end; then settle the uploads."""


@dataclass(frozen=True, kw_only=True)
class KillTrainer:
    """Kill the trainer; complete saves may still be uploaded and committed."""


@dataclass(frozen=True, kw_only=True)
class SalvageSaves:
    """Upload and commit the complete saves of a trainer that was killed with its supervisor."""


@dataclass(frozen=True, kw_only=True)
class AbandonRun:
    """Kill the trainer; upload and commit nothing more."""


@dataclass(frozen=True, kw_only=True)
class LeaveAttempt:
    """Abandon the run and end the supervisor: this node is no longer needed."""


Effect = LaunchTrainer | SaveAndStop | KillTrainer | SalvageSaves | AbandonRun | LeaveAttempt
Reaction = tuple[NodeState, tuple[Effect, ...]]


def on_directive(node: NodeState, directive: Directive) -> Reaction:
    """React to a directive; replays and stale ones change nothing."""
    if directive.kind is DirectiveKind.CARRY_ON or directive.seq <= node.directive:
        return node, ()
    node = replace(node, directive=directive.seq)
    if directive.kind is DirectiveKind.START:
        return _start(node, directive.generation)
    return _stop(node, directive)


def on_run_ended(node: NodeState, number: int, phase: NodePhase) -> Reaction:
    """React to a run that has ended and settled; ``phase`` is STOPPED, FAILED or FINISHED.

    A run that failed while it was being killed counts as stopped.
    """
    if number != node.generation or node.phase is not NodePhase.RUNNING:
        return node, ()
    if phase is NodePhase.FAILED and node.stopping:
        phase = NodePhase.STOPPED
    return replace(node, phase=phase, stopping=False), ()


def on_eviction_notice(node: NodeState) -> Reaction:
    """React to Azure's notice that it takes this node."""
    return _save(replace(node, evicting=True))


def on_stop_by_passed(node: NodeState) -> Reaction:
    """React to a ``stop_by`` that passed without an answer of the service."""
    return _save(node)


def on_stale_generation(node: NodeState) -> Reaction:
    """React to 409: the generation that runs here is stale."""
    if node.phase is not NodePhase.RUNNING:
        return node, ()
    return replace(node, stopping=True), (AbandonRun(),)


def on_attempt_over(node: NodeState) -> Reaction:
    """React to 410: the attempt is over."""
    return replace(node, evicting=True), (LeaveAttempt(),)


def on_supervisor_restart(node: NodeState) -> Reaction:
    """React to the start of a supervisor on a disk that remembers ``node``.

    Any leftover trainer was killed. The generation has not settled until its complete saves are
    uploaded and committed. An eviction notice is forgotten: Azure repeats one that still holds, and
    a node that was merely terminated would otherwise ignore every later generation.
    """
    if node.phase is NodePhase.RUNNING:
        return replace(node, stopping=True, evicting=False), (SalvageSaves(),)
    return replace(node, stopping=False, evicting=False), ()


def _start(node: NodeState, generation: Generation | None) -> Reaction:
    assert generation is not None, "a START directive carries its generation"
    if node.evicting or generation.number <= node.generation:
        return node, ()
    left_over: tuple[Effect, ...] = (AbandonRun(),) if node.phase is NodePhase.RUNNING else ()
    node = replace(node, generation=generation.number, phase=NodePhase.RUNNING, stopping=False)
    return node, (*left_over, LaunchTrainer(generation=generation))


def _stop(node: NodeState, directive: Directive) -> Reaction:
    if directive.number < node.generation:
        return node, ()
    if node.phase is NodePhase.RUNNING:
        if directive.kind is DirectiveKind.STOP:
            return replace(node, stopping=True), (KillTrainer(),)
        return _save(node)
    if directive.number == node.generation:
        return node, ()  # it has settled and reported already
    return replace(node, generation=directive.number, phase=NodePhase.STOPPED), ()


def _save(node: NodeState) -> Reaction:
    if node.phase is not NodePhase.RUNNING or node.stopping:
        return node, ()
    return replace(node, stopping=True), (SaveAndStop(),)
