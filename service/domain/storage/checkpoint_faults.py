"""What to do about a checkpoint that nodes say they cannot load. Pure.

A node's word makes the service look; it is never enough by itself. What a look does not show, bytes
that differ though size and ETag are right, takes two machines to say. One that says so again and
again, and alone, is left: the next attempt's machines are another pair of eyes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

ALONE = 2  # generations in which one machine says so, before others are asked


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A node's word, in one generation, that the checkpoint which it was to load is broken."""

    node_id: str
    attempt_id: str
    generation: int
    file: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What is wrong with a checkpoint: nothing loads it any more."""

    file: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Doubt:
    """One machine finds what nobody else has seen: let others look."""

    file: str
    reason: str


def judge(said: Sequence[Finding], seen: Fault | None, attempt_id: str) -> Fault | Doubt | None:
    """Whether a checkpoint is broken; None: it is to be tried, or tried again.

    ``seen`` is what the service's own look has shown, ``said`` what nodes said of any attempt.
    """
    if seen is not None or not said:
        return seen
    first = said[0]
    if len({f.node_id for f in said}) > 1:
        return Fault(file=first.file, reason=first.reason)
    tries = {f.generation for f in said if f.attempt_id == attempt_id}
    return Doubt(file=first.file, reason=first.reason) if len(tries) >= ALONE else None
