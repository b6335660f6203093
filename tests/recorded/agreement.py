"""Agreement of the emulator with the recordings; `python -m tests.recorded.agreement` updates it.

The command removes known differences that no longer occur, prints new ones, and writes
docs/emulator-agreement.md. A new difference in `known.json` needs a reason.
"""

import asyncio
import json
import re
import tempfile
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path
from typing import Any

from tests.recorded.replay import Outcome, recordings, replay

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "emulator-agreement.md"
KNOWN = Path(__file__).parent / "known.json"
REASONS = ("not offered", "ignored", "differs")
BODY = ("no member ", "empty ", "type of ")  # prefixes of differences of a body
Finding = tuple[str, str]  # subject, difference


@cache
def outcomes() -> tuple[Outcome, ...]:
    """Play all recordings, each to an emulator of its own."""
    with tempfile.TemporaryDirectory() as folder:
        plays = [asyncio.run(replay(n, Path(folder) / n)) for n in recordings()]
    return tuple(outcome for played in plays for outcome in played)


def findings() -> set[Finding]:
    """Return all differences; a difference of a body is listed once for its resource type."""
    return {(_subject(o.operation, d), d) for o in outcomes() for d in map(_alone, o.differences)}


def known() -> list[dict[str, Any]]:
    """Return the accepted differences: subject, reason, why, and the differences."""
    entries: list[dict[str, Any]] = json.loads(KNOWN.read_text())
    return entries


def known_findings() -> set[Finding]:
    """Return the accepted differences as findings."""
    return {
        (entry["subject"], difference) for entry in known() for difference in entry["differences"]
    }


def _alone(difference: str) -> str:
    """Return a difference of a list's rows as a difference of one row."""
    return difference.replace("value[].", "") if difference.startswith(BODY) else difference


def _subject(operation: str, difference: str) -> str:
    if not difference.startswith(BODY):
        return operation
    if " of " in operation:
        return "operations"
    return re.sub(r"(/\{name\})+$", "", operation.partition(" ")[2])


def page() -> str:
    """Return the whole page."""
    rows = outcomes()
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        counts[row.operation]["all"] += 1
        counts[row.operation]["agree"] += not row.differences
        counts[row.operation]["alike"] += all(d.startswith(BODY) for d in row.differences)
    totals = sum(counts.values(), Counter[str]())
    return "\n".join(
        [
            "# How far the emulator agrees with Azure",
            "",
            "For people who rely on [the emulator](emulator.md): its answers beside those that",
            "Azure gave when the tests of public clients were recorded.",
            "",
            "Generated from the recordings by `make docs`; do not edit.",
            "",
            f"{totals['all']} exchanges of {len(recordings())} recordings. "
            f"{totals['alike']} have the recorded status, error code",
            f"and polling headers; {totals['agree']} of these have every recorded member too.",
            "",
            *_method(),
            "## Operations",
            "",
            "| operation | exchanges | same status and headers | same members too |",
            "|---|---|---|---|",
            *(
                f"| `{o}` | {c['all']} | {c['alike']} | {c['agree']} |"
                for o, c in sorted(counts.items())
            ),
            "",
            "## Known differences",
            "",
            "Each is named in `tests/recorded/known.json`. The tests fail on a new one, and on one",
            "that is gone.",
            "",
            "| what | reason | differences | why |",
            "|---|---|---|---|",
            *(
                f"| `{e['subject']}` | {e['reason']} | {len(e['differences'])} | {e['why']} |"
                for e in known()
            ),
            "",
        ]
    )


def _method() -> list[str]:
    sources = Counter(name.partition(".")[0] for name in recordings())
    sources_text = ", ".join(f"{source} ({count})" for source, count in sorted(sources.items()))
    return [
        f"Recordings of {sources_text}.",
        "",
        "`tests/recorded/reduce.py` made facts of them: method, path, api-version, request body,",
        "status, error code, polling headers, names and types of members. What Azure has retired",
        "since is renewed: Basic addresses became Standard, sizes that the emulator does not sell",
        "became Standard_D2s_v3. Lookups of images and role assignments are left out.",
        "",
    ]


def main() -> None:
    """Remove obsolete differences, print new ones, and write the page."""
    current = findings()
    entries = [
        entry | {"differences": remaining}
        for entry in known()
        if (remaining := [d for d in entry["differences"] if (entry["subject"], d) in current])
    ]
    KNOWN.write_text(json.dumps(entries, indent=1) + "\n")
    for subject, difference in sorted(current - known_findings()):
        print(f"new: {subject}: {difference}")  # noqa: T201 - a command
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
