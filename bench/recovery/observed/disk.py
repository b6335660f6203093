"""State of training on a machine's disk, in the folders that supervisor and trainer share."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class OutboxSave:
    """One save in a machine's outbox; ``complete`` when this machine's part is complete."""

    path: str  # path in the job's container
    complete: bool


@dataclass(frozen=True, kw_only=True)
class Run:
    """One generation on one machine."""

    number: int
    folder: Path
    progress: int | None = None  # last loaded or finished step
    first_step_at: float | None = None  # Unix seconds of the first step's end; rank 0 only
    saves: tuple[OutboxSave, ...] = ()


def newest_run(work: Path) -> Run | None:
    """Return the newest generation that started on the machine, or None."""
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


def saves(folder: Path) -> tuple[OutboxSave, ...]:
    """Return the saves in a run's outbox, oldest first.

    It must be fast, because callers poll it every few milliseconds.
    """
    return tuple(_saves(folder / "outbox"))


def generation(run: Run) -> dict[str, Any] | None:
    """Return the generation message of the run, or None before it is written."""
    text = _text(run.folder / "generation.json")
    return json.loads(text) if text else None


def _saves(outbox: Path) -> Iterator[OutboxSave]:
    try:
        folders = sorted(outbox.iterdir())
    except OSError:  # no outbox, or the run's folder is being deleted
        return
    for folder in folders:
        try:
            is_whole = any(
                f.name.startswith("rank-") and f.suffix == ".json" for f in folder.iterdir()
            )
        except OSError:  # uploaded and deleted at this moment
            continue
        kind, _, name = folder.name.partition("-")
        yield OutboxSave(path=f"{kind}/{name}", complete=is_whole)


def _first_step_at(metrics: Path) -> float | None:
    try:
        with metrics.open() as lines:
            line = lines.readline()
    except OSError:
        return None
    return float(json.loads(line)["at"]) if line.endswith("\n") else None


def _text(path: Path) -> str:
    """Return the text of a file, or an empty string when it does not exist."""
    try:
        return path.read_text()
    except OSError:
        return ""
