"""docs/decisions.md, from the decision records in docs/adr."""

import re
from pathlib import Path

from tests.repository.pages.markdown import table
from tests.repository.sources import ROOT

PAGE = ROOT / "docs" / "decisions.md"
RECORDS = ROOT / "docs" / "adr"
_HEAD = """\
# Decisions

For people who change Rekindle and want to know why it is as it is. A decision binds until another
record takes its place.

Generated from `docs/adr` by `make docs`; do not edit.
"""


def page() -> str:
    """Return the whole page."""
    rows = [_row(record) for record in sorted(RECORDS.glob("*.md"))]
    return "\n".join([_HEAD, *table(("number", "decision", "status"), rows), ""])


def _row(record: Path) -> tuple[str, str, str]:
    text = record.read_text()
    number, title = text.splitlines()[0].removeprefix("# ").split(". ", 1)
    status = _without_links(text.split("\n\n")[1].replace("\n", " "))
    match = re.search(r"(Superseded|Amended|Amends)[^.]*", status)
    return (
        number,
        f"[{title}](adr/{record.name})",
        match[0] if match else "accepted",
    )


def _without_links(text: str) -> str:
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
