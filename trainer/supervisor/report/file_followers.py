"""Follow the files that a trainer appends to while it runs."""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from trainer.contract import Message, SaveCost, Span, StepMetrics
from trainer.rundir import RunDir
from trainer.supervisor.clock import NodeClock
from trainer.supervisor.report.heartbeat_reports import HeartbeatReports

M = TypeVar("M", bound=Message)

log = logging.getLogger(__name__)


class LineTail:
    """The unread lines of one file; a half line waits for its end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def read_new_lines(self) -> list[bytes]:
        """Return the complete lines that are new."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        end = data.rfind(b"\n") + 1
        self._offset += end
        return data[:end].splitlines()


class RunFileFollower:
    """Passes metrics, spans and progress of one run to the reports."""

    def __init__(
        self,
        folder: RunDir,
        reports: HeartbeatReports,
        clock: NodeClock,
        to_service_time: Callable[[float], float],
    ) -> None:
        self._clock, self._to_service_time = clock, to_service_time
        self._skipped = folder.skipped
        self._progress, self._save_cost = folder.progress, folder.save_cost
        self._metrics = LineTail(folder.metrics)
        self._spans = LineTail(folder.spans)
        self._warnings = folder.warnings
        self._warned: set[str] = set()
        self._reports = reports

    def skip_spans(self) -> None:
        """Skip the existing spans: an earlier supervisor has reported them."""
        self._spans.read_new_lines()

    def report_news(self) -> None:
        """Report what is new."""
        metrics = _parse_lines(StepMetrics, self._metrics.read_new_lines())
        self._reports.add_metrics([replace(m, at=self._to_service_time(m.at)) for m in metrics])
        self._reports.add_spans(
            [self._in_service_time(s) for s in _parse_lines(Span, self._spans.read_new_lines())]
        )
        if skipped := sorted(self._skipped.glob("rank-*")):
            self._reports.begin_trouble("disk", skipped[0].read_text(), self._clock.now())
        else:
            self._reports.end_trouble("disk", self._clock.now())
        for warning in sorted(self._warnings.glob("*.txt")):
            if warning.name not in self._warned:
                self._warned.add(warning.name)
                self._reports.add_notice("training", warning.read_text(), self._clock.now())
        if self._progress.exists() and (step := int(self._progress.read_text())):
            self._reports.record_step(step)
        if self._save_cost.exists():
            self._reports.save_cost = SaveCost.from_json(self._save_cost.read_bytes())

    def _in_service_time(self, span: Span) -> Span:
        started = self._to_service_time(span.started_at)
        ended = self._to_service_time(span.ended_at)
        return replace(span, started_at=started, ended_at=ended)


def _parse_lines(kind: type[M], lines: list[bytes]) -> list[M]:
    parsed = []
    for line in lines:
        try:
            parsed.append(kind.from_json(line))
        except ValueError as e:
            log.warning("trainer.line_refused reason=%s", e)
    return parsed
