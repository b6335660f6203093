"""Following the files that a trainer appends to while it runs."""

import logging
from pathlib import Path
from typing import TypeVar

from trainer.contract import Message, Span, StepMetrics
from trainer.rundir import RunDir
from trainer.supervisor.reports import Reports

M = TypeVar("M", bound=Message)

log = logging.getLogger(__name__)


class Tail:
    """The lines of one file that were not read before; a half line waits for its end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0

    def lines(self) -> list[bytes]:
        """Whole lines that are new."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        end = data.rfind(b"\n") + 1
        self._read += end
        return data[:end].splitlines()


class Follower:
    """Carries measurements, spans and progress of one run into the reports."""

    def __init__(self, folder: RunDir, reports: Reports) -> None:
        self._progress = folder.progress
        self._metrics = Tail(folder.metrics)
        self._spans = Tail(folder.spans)
        self._reports = reports

    def look(self) -> None:
        """Pass on what is new."""
        self._reports.measured(_parsed(StepMetrics, self._metrics.lines()))
        self._reports.spent(_parsed(Span, self._spans.lines()))
        if self._progress.exists() and (step := int(self._progress.read_text())):
            self._reports.stepped(step)


def _parsed(kind: type[M], lines: list[bytes]) -> list[M]:
    parsed = []
    for line in lines:
        try:
            parsed.append(kind.from_json(line))
        except ValueError as e:
            log.warning("trainer.line_refused reason=%s", e)
    return parsed
