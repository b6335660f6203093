"""What a machine's disk says of its training: the folders that supervisor and trainer share."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Save:
    """One save in a machine's outbox; ``whole`` once this machine's part of it is written."""

    path: str  # in the job's container
    whole: bool


@dataclass(frozen=True, kw_only=True)
class Run:
    """One generation on one machine."""

    number: int
    folder: Path
    progress: int | None = None  # the last step that is loaded or finished
    first_step_at: float | None = None  # when the first step of this run was done; rank 0 only
    saves: tuple[Save, ...] = ()


def newest_run(work: Path) -> Run | None:
    """The newest generation that was begun on the machine, or None."""
    folders = sorted(work.glob("gen-*"))
    if not folders:
        return None
    folder = folders[-1]
    progress = _text(folder / "progress")
    return Run(
        number=int(folder.name.removeprefix("gen-")),
        folder=folder,
        progress=int(progress) if progress else None,
        first_step_at=_first_step_at(folder / "metrics.jsonl"),
        saves=saves(folder),
    )


def saves(folder: Path) -> tuple[Save, ...]:
    """What lies in the outbox of a run, oldest first. Quick: asked for every few milliseconds."""
    return tuple(_saves(folder / "outbox"))


def generation(run: Run) -> dict[str, Any] | None:
    """The generation row that the run was started with, once it is there."""
    text = _text(run.folder / "generation.json")
    return json.loads(text) if text else None


def _saves(outbox: Path) -> Iterator[Save]:
    try:
        folders = sorted(outbox.iterdir())
    except OSError:  # there is none, or the run's folder is being deleted
        return
    for folder in folders:
        try:
            whole = any(
                f.name.startswith("rank-") and f.suffix == ".json" for f in folder.iterdir()
            )
        except OSError:  # it was uploaded at this moment
            continue
        kind, _, name = folder.name.partition("-")
        yield Save(path=f"{kind}/{name}", whole=whole)


def _first_step_at(metrics: Path) -> float | None:
    try:
        with metrics.open() as lines:
            line = lines.readline()
    except OSError:
        return None
    return float(json.loads(line)["at"]) if line.endswith("\n") else None


def _text(path: Path) -> str:
    """Empty when it is not there (any more)."""
    try:
        return path.read_text()
    except OSError:
        return ""
