"""Decide about a checkpoint that nodes report as unloadable. Pure.

A report alone proves nothing: the service verifies sizes and ETags itself. Damage that this does
not show, such as changed bytes, needs reports of two machines. If one machine reports it repeatedly
and alone, the attempt moves to other machines, which give a second opinion.
"""

from collections.abc import Sequence
from dataclasses import dataclass

MAX_SINGLE_REPORTS = 2  # generations in which one machine says so, before others are asked


@dataclass(frozen=True, kw_only=True)
class CheckpointFinding:
    """A node's report, in one generation, that it cannot load the checkpoint."""

    node_id: str
    attempt_id: str
    generation: int
    file: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class CheckpointFault:
    """Why the checkpoint is broken; it is never loaded again."""

    file: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class CheckpointDoubt:
    """One machine alone reports damage: try other machines."""

    file: str
    reason: str


def judge_checkpoint(
    reports: Sequence[CheckpointFinding], own_fault: CheckpointFault | None, attempt_id: str
) -> CheckpointFault | CheckpointDoubt | None:
    """Decide whether a checkpoint is broken; None: load it, or try again.

    ``own_fault``: what the service's own check has found. ``reports``: of all attempts.
    """
    if own_fault is not None or not reports:
        return own_fault
    first = reports[0]
    if len({f.node_id for f in reports}) > 1:
        return CheckpointFault(file=first.file, reason=first.reason)
    tries = {f.generation for f in reports if f.attempt_id == attempt_id}
    return (
        CheckpointDoubt(file=first.file, reason=first.reason)
        if len(tries) >= MAX_SINGLE_REPORTS
        else None
    )
