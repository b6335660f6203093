"""What a run's ranks have left in writing; torchrun's exit status tells nothing."""

from collections.abc import Iterable
from pathlib import Path

from trainer.contract import NodePhase
from trainer.rundir import OutOfMemory, RankResult, RunDir


def how_it_ended(folder: RunDir, ranks: range) -> NodePhase:
    """FINISHED, STOPPED, or FAILED: some rank has left no result, or not yet."""
    results = [result_of(folder, rank) for rank in ranks]
    if all(r is not None and r.how == "finished" for r in results):
        return NodePhase.FINISHED
    return NodePhase.FAILED if None in results else NodePhase.STOPPED


def result_of(folder: RunDir, rank: int) -> RankResult | None:
    """What this rank has left."""
    try:
        return RankResult.from_json(folder.result(rank).read_bytes())
    except (OSError, ValueError):
        return None


def out_of_memory(folder: RunDir, ranks: range) -> dict[int, OutOfMemory]:
    """What ranks had no memory for, by rank."""
    found = {rank: _out_of_memory(folder, rank) for rank in ranks}
    return {rank: mark for rank, mark in found.items() if mark is not None}


def hopeless(folder: RunDir, ranks: range) -> str:
    """Why no second try would help, as the first rank says that says so; else nothing."""
    return _first_text(folder.hopeless(rank) for rank in ranks)


def unhealthy(folder: RunDir, ranks: range) -> str:
    """Why the machine must be replaced, as the first rank says that says so; else nothing."""
    return _first_text(folder.unhealthy(rank) for rank in ranks)


def _first_text(texts: Iterable[Path]) -> str:
    return next((text.read_text() for text in texts if text.exists()), "")


def _out_of_memory(folder: RunDir, rank: int) -> OutOfMemory | None:
    try:
        return OutOfMemory.from_json(folder.out_of_memory(rank).read_bytes())
    except (OSError, ValueError):
        return None
