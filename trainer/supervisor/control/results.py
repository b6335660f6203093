"""Read the files in which a run's ranks report how they ended; torchrun's status says nothing."""

from collections.abc import Iterable
from pathlib import Path

from trainer.contract import NodePhase
from trainer.rundir import OutOfMemoryMark, RankResult, RunDir


def run_phase(folder: RunDir, ranks: range) -> NodePhase:
    """Return FINISHED, STOPPED, or FAILED where some rank has left no result."""
    results = [read_result(folder, rank) for rank in ranks]
    if all(r is not None and r.how == "finished" for r in results):
        return NodePhase.FINISHED
    return NodePhase.FAILED if None in results else NodePhase.STOPPED


def read_result(folder: RunDir, rank: int) -> RankResult | None:
    """Return the rank's result, or None."""
    try:
        return RankResult.from_json(folder.result(rank).read_bytes())
    except (OSError, ValueError):
        return None


def out_of_memory_marks(folder: RunDir, ranks: range) -> dict[int, OutOfMemoryMark]:
    """Return the out-of-memory marks, by rank."""
    marks = {rank: _read_mark(folder, rank) for rank in ranks}
    return {rank: mark for rank, mark in marks.items() if mark is not None}


def non_retryable_reason(folder: RunDir, ranks: range) -> str:
    """Return the first rank's reason why a retry would not help, or ""."""
    return _first_text(folder.non_retryable(rank) for rank in ranks)


def unhealthy_reason(folder: RunDir, ranks: range) -> str:
    """Return the first rank's reason why the machine must be replaced, or ""."""
    return _first_text(folder.unhealthy(rank) for rank in ranks)


def _first_text(texts: Iterable[Path]) -> str:
    return next((text.read_text() for text in texts if text.exists()), "")


def _read_mark(folder: RunDir, rank: int) -> OutOfMemoryMark | None:
    try:
        return OutOfMemoryMark.from_json(folder.out_of_memory(rank).read_bytes())
    except (OSError, ValueError):
        return None
