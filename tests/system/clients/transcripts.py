"""What a client of the emulator was told, for a reader: the pages docs/*-session.txt."""

import re
from dataclasses import dataclass, field
from pathlib import Path

DOCS = Path(__file__).parents[3] / "docs"
# What differs from run to run, and would make a change of every line.
_CHANGING = (
    (re.compile(r"localhost:\d+"), "localhost:8443"),
    (re.compile(r"\b20\d\d-\d\d-\d\dT[\d:.]+(Z|\+00:00)?"), "TIME"),
    (re.compile(r"\b(?!0{8}|1{8})[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "UUID"),
)


@dataclass
class Transcript:
    """Lines that are printed as they come, and kept in a file once all went well."""

    folder: Path  # of this run; shown as FOLDER
    lines: list[str] = field(default_factory=list)

    def say(self, line: str) -> None:
        """Print a line, and remember it without what differs from run to run."""
        line = line.replace(str(self.folder), "FOLDER")
        for changing, replacement in _CHANGING:
            line = changing.sub(replacement, line)
        self.lines.append(line)
        print(line, flush=True)  # noqa: T201 - a program's output

    def keep(self, name: str) -> None:
        """Write them to this file of docs/."""
        (DOCS / name).write_text("\n".join(self.lines) + "\n")
