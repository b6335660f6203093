"""The documents say what is so: commands exist, links lead somewhere, tables match the code."""

import re
from pathlib import Path

import pytest

from service.settings import Settings
from tests.repository import lifecycle
from tests.repository.sources import ROOT, files, text

ADRS = sorted((ROOT / "docs" / "adr").glob("*.md"))
HEADINGS = ["Context", "Decision", "Consequences", "Alternatives"]
PAGES = [file for file in files() if file.suffix == ".md"]


def test_the_life_cycle_page_is_what_the_tables_say() -> None:
    assert lifecycle.PAGE.read_text() == lifecycle.page(), "run make docs"


def test_agents_md_stays_under_150_lines() -> None:
    assert len(text(Path("AGENTS.md")).splitlines()) < 150


def test_the_changelog_has_a_place_for_what_comes_next() -> None:
    assert "## [Unreleased]" in text(Path("CHANGELOG.md"))


def test_the_operators_page_names_every_setting_and_no_other() -> None:
    table = text(Path("docs/operations.md")).split("\n## Settings\n")[1].split("\n## ")[0]
    named = re.findall(r"`REKINDLE_([A-Z_]+)`", table)

    assert set(named) == {name.upper() for name in Settings.model_fields}


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_make_target_that_a_page_names_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", text(Path("Makefile")), re.MULTILINE))
    named = set(re.findall(r"(?:`|^\s*)make ([a-z]+)\b", text(page), re.MULTILINE))

    assert named <= targets


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_link_leads_to_a_file(page: Path) -> None:
    links = re.findall(r"\]\((?!https?://|#|mailto:)([^)#\s]+)", text(page))

    assert [link for link in links if not (ROOT / page.parent / link).exists()] == []


@pytest.mark.parametrize("page", ["README.md", "AGENTS.md", "CONTRIBUTING.md"])
def test_every_file_that_a_guide_names_exists(page: str) -> None:
    tops = {file.parts[0] for file in files()}
    named = re.findall(r"`([\w.-]+/[\w./-]*)`", text(Path(page)))
    ours = [name for name in named if name.split("/")[0] in tops]

    assert [name for name in ours if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("adr", ADRS, ids=lambda path: path.stem)
def test_a_decision_record_has_one_form_and_fits_a_page(adr: Path) -> None:
    lines = adr.read_text().splitlines()

    assert re.fullmatch(r"# \d{4}\. .+", lines[0])
    assert [line[3:] for line in lines if line.startswith("## ")] == HEADINGS
    assert len(lines) <= 70


def test_decision_records_are_numbered_without_gaps() -> None:
    assert [int(adr.name[:4]) for adr in ADRS] == list(range(1, len(ADRS) + 1))
