"""Plan which stored pieces of a flat parameter fill the range that a rank needs."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class StoredPiece:
    """Elements [start, start + numel) of a parameter, as stored by one rank."""

    start: int
    numel: int
    rank: int


@dataclass(frozen=True)
class PieceCopy:
    """Copy ``numel`` elements: from ``source`` in the rank's piece to ``target`` in the range."""

    rank: int
    source: int
    target: int
    numel: int


def plan_copies(start: int, numel: int, pieces: Iterable[StoredPiece]) -> list[PieceCopy]:
    """Return the copies that fill [start, start + numel), in order; ValueError on a gap."""
    plan, filled, end = [], start, start + numel
    for piece in sorted(pieces, key=lambda p: (p.start, p.rank)):
        upto = min(end, piece.start + piece.numel)
        if piece.start <= filled < upto:
            plan.append(PieceCopy(piece.rank, filled - piece.start, filled - start, upto - filled))
            filled = upto
    if filled < end:
        raise ValueError(f"elements {filled} to {end} are in no file of the checkpoint")
    return plan
