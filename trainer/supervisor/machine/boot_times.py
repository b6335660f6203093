"""Durations of the boot before the supervisor joined, as cloud-init recorded them.

cloud-init writes lines of NAME START END beside the node's configuration, and last START_SUPERVISOR
with a start only: from there on the time is the supervisor's. A restarted supervisor counts from
its own process's start.
"""

import logging
from pathlib import Path

from trainer.contract import Span

START_SUPERVISOR = "start_supervisor"
TIMES = "boot-times"  # beside NODE_CONFIG

log = logging.getLogger(__name__)


def read_boot_spans(
    times: Path, started_at: float, *, is_restart: bool
) -> tuple[tuple[Span, ...], float]:
    """Return the boot's spans, and the start of the supervisor's own time."""
    entries = _read_lines(times)
    spans = tuple(Span(name=n, started_at=a, ended_at=b) for n, a, b in entries if b)
    handed_over = next((a for n, a, b in entries if n == START_SUPERVISOR and not b), started_at)
    return spans, started_at if is_restart else handed_over


def _read_lines(times: Path) -> list[tuple[str, float, float]]:
    """Parse the lines; unreadable ones are only missing in the report."""
    try:
        lines = times.read_text().splitlines()
    except (OSError, ValueError) as e:
        log.info("boot.not_timed reason=%s", e)
        return []
    return [entry for line in lines if (entry := _parse_line(line)) is not None]


def _parse_line(line: str) -> tuple[str, float, float] | None:
    name, *times = line.split() or [""]
    try:
        start, end = float(times[0]), float(times[1]) if len(times) > 1 else 0.0
    except (IndexError, ValueError):
        log.info("boot.not_timed line=%r", line)
        return None
    is_complete = end >= start or name == START_SUPERVISOR
    return (name, start, end) if is_complete else None
