"""What the machine's time went into before its supervisor joined: cloud-init's notes, and our own.

cloud-init leaves lines of NAME START END beside the node's configuration, and last of all
START_SUPERVISOR with a start only: from there on the time is the supervisor's. A supervisor
that is started again on the same machine begins with its own process.
"""

import logging
from pathlib import Path

from trainer.contract import Span

START_SUPERVISOR = "start_supervisor"
TIMES = "boot-times"  # beside NODE_CONFIG

log = logging.getLogger(__name__)


def read_boot_spans(
    times: Path, started_at: float, *, again: bool
) -> tuple[tuple[Span, ...], float]:
    """What is known of the boot, and since when the time is the supervisor's own."""
    noted = _read_lines(times)
    spans = tuple(Span(name=n, started_at=a, ended_at=b) for n, a, b in noted if b)
    handed_over = next((a for n, a, b in noted if n == START_SUPERVISOR and not b), started_at)
    return spans, started_at if again else handed_over


def _read_lines(times: Path) -> list[tuple[str, float, float]]:
    """Its lines; what cannot be read is only missing in a table, and no reason not to work."""
    try:
        lines = times.read_text().splitlines()
    except (OSError, ValueError) as e:
        log.info("boot.not_timed reason=%s", e)
        return []
    return [noted for line in lines if (noted := _parse_line(line)) is not None]


def _parse_line(line: str) -> tuple[str, float, float] | None:
    name, *times = line.split() or [""]
    try:
        start, end = float(times[0]), float(times[1]) if len(times) > 1 else 0.0
    except (IndexError, ValueError):
        log.info("boot.not_timed line=%r", line)
        return None
    whole = end >= start or name == START_SUPERVISOR
    return (name, start, end) if whole else None
