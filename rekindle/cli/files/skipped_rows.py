"""Count skipped rows of a file by reason."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rekindle.cli import formats

_LINES_IN_TEXT = 5
_LINES_IN_JSON = 100


@dataclass
class SkippedRows:
    """Lines of skipped rows by reason; equal reasons have equal texts."""

    lines: dict[str, list[int]] = field(default_factory=dict)

    def add(self, line: int, reason: str) -> None:
        """Count the row on this line as skipped."""
        self.lines.setdefault(reason, []).append(line)

    @property
    def total(self) -> int:
        """Number of skipped rows."""
        return sum(map(len, self.lines.values()))

    def as_dict(self) -> dict[str, Any]:
        """Return the counts as JSON output."""
        return {
            reason: {"rows": len(lines), "lines": lines[:_LINES_IN_JSON]}
            for reason, lines in self.lines.items()
        }

    def reasons(self) -> Iterator[str]:
        """Yield each reason with the first lines."""
        for reason, lines in self.lines.items():
            named = ", ".join(map(str, lines[:_LINES_IN_TEXT]))
            suffix = " and more" if len(lines) > _LINES_IN_TEXT else ""
            yield f"{formats.printable_line(reason)} (lines {named}{suffix})"
