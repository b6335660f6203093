"""docs/threat-model.md names tests that exist."""

import re

from tests.repository.sources import ROOT

PAGE = (ROOT / "docs" / "threat-model.md").read_text()


def test_every_line_that_names_a_test_names_one_that_exists() -> None:
    sources = [file.read_text() for file in (ROOT / "tests").rglob("test_*.py")]
    known = {name for text in sources for name in re.findall(r"def (test_\w+)", text)}
    known |= {file.stem for file in (ROOT / "tests").rglob("test_*.py")}
    named = set(re.findall(r"`(test_\w+)`", PAGE))

    assert len(named) > 30
    assert named - known == set()


def test_every_threat_names_what_holds_it() -> None:
    rows = [line for line in PAGE.splitlines() if re.match(r"\| (?!what they try|---)", line)]

    assert [row for row in rows if "`" not in row.split("|")[4]] == []
