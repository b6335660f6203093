"""Write what the supervisor reads during training: metrics, spans, progress.

Processes with local rank 0 write; on the others every call does nothing.
"""

import errno
import logging
import math
from collections import deque
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from trainer.contract import Message, SaveCost, Span, StepMetrics
from trainer.process.disk_full import is_disk_full
from trainer.rundir import RunDir, write_atomically
from trainer.state import RankIdentity

MAX_WAITING_LINES = 10_000

log = logging.getLogger(__name__)


class Journal:
    """Writes into the RunDir; a line is whole once it ends in a newline."""

    def __init__(self, rundir: RunDir, identity: RankIdentity) -> None:
        self._rundir, self._identity = rundir, identity
        self._spans: set[str] = set()
        self._metrics_file, self._spans_file = _Lines(rundir.metrics), _Lines(rundir.spans)

    def metrics(self, metrics: StepMetrics) -> None:
        """Add the metrics of one training step; a repeated step replaces earlier ones.

        A validation that measured nothing is left out.
        """
        if self._identity.rank == 0:
            if metrics.valid_loss is not None and math.isnan(metrics.valid_loss):
                metrics = replace(metrics, valid_loss=None)
            self._metrics_file.add(metrics)

    def span(self, name: str, started_at: float, ended_at: float) -> None:
        """Add one named interval."""
        if self._identity.local_rank == 0:
            self._spans_file.add(Span(name=name, started_at=started_at, ended_at=ended_at))

    def span_once(self, name: str, started_at: float, ended_at: float) -> None:
        """Add a named interval, if it is the first of that name."""
        if name not in self._spans:
            self._spans.add(name)
            self.span(name, started_at, ended_at)

    def warn(self, name: str, text: str) -> None:
        """Warn the user once; ``name`` is the topic."""
        path = self._rundir.warnings / f"{name}.txt"
        if self._identity.rank == 0 and not path.exists():
            log.warning("%s", text)
            with suppress(OSError):  # no space: it is in the log
                write_atomically(path, text)

    def progress(self, step: int) -> None:
        """Record how many training steps are finished; not synced, since it is only a hint."""
        if self._identity.local_rank == 0:
            _write_optional(self._rundir.progress, str(step))

    def save_cost(self, cost: SaveCost) -> None:
        """Record the cost of the last save; only a hint too."""
        if self._identity.rank == 0:
            _write_optional(self._rundir.save_cost, cost.to_json())


class _Lines:
    """A file that grows line by line; on a full disk lines wait for the next call."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._waiting: deque[bytes] = deque(maxlen=MAX_WAITING_LINES)

    def add(self, message: Message) -> None:
        self._waiting.append(message.to_json().encode() + b"\n")
        try:
            while self._waiting:
                _append_line(self._path, self._waiting[0])
                self._waiting.popleft()
        except OSError as e:
            if not is_disk_full(e):
                raise
            log.warning(
                "%s: %d lines wait for room on the disk", self._path.name, len(self._waiting)
            )


def _write_optional(path: Path, text: str) -> None:
    """Write the file whole, or not at all where the disk is full."""
    part_path = path.with_name(f".{path.name}.part")
    try:
        part_path.write_text(text)
        part_path.replace(path)
    except OSError as e:
        if not is_disk_full(e):
            raise


def _append_line(path: Path, line: bytes) -> None:
    """Append the whole line or nothing."""
    with path.open("ab", buffering=0) as f:
        end = f.tell()
        if f.write(line) < len(line):
            f.truncate(end)
            raise OSError(errno.ENOSPC, "the disk took a part of it only")
