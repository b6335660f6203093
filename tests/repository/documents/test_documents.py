"""Documents agree with the code: commands exist, links lead somewhere, tables match."""

import ast
import re
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path

import pytest

from emulator import app as emulator_app
from emulator import options as emulator_options
from tests.repository import messages
from tests.repository.sources import ROOT, files, functions, links, python_files, text

ADRS = sorted((ROOT / "docs" / "adr").glob("*.md"))
HEADINGS = ["Context", "Decision", "Consequences", "Alternatives"]
PAGES = [file for file in files() if file.suffix == ".md"]
TROUBLESHOOTING = Path("docs/troubleshooting.md")
FAULTS = Path("docs/faults.md")
EMULATOR = Path("docs/emulator.md")
CONCEPTS = Path("docs/where-is.md")
THREATS = text(Path("docs/threat-model.md"))
DOCS = [page for page in PAGES if page.parts[0] == "docs"]
ON_SITE = [page for page in DOCS if len(page.parts) == 2]
TEST_FILE = re.compile(r"`((?:tests/)?[\w./*-]*test_[\w*-]*\.py)`")


def test_agents_md_stays_under_150_lines() -> None:
    assert len(text(Path("AGENTS.md")).splitlines()) < 150


def test_the_changelog_has_a_place_for_what_comes_next() -> None:
    assert "## [Unreleased]" in text(Path("CHANGELOG.md"))


def test_an_entry_of_the_changelog_is_one_line_of_at_most_160_characters() -> None:
    entries = text(Path("CHANGELOG.md")).split("## [Unreleased]")[1].splitlines()

    assert [line for line in entries if line and not line.startswith(("- ", "#"))] == []
    assert [line for line in entries if len(line) > 160] == []


def test_every_make_target_that_a_page_names_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", text(Path("Makefile")), re.MULTILINE))
    pattern = re.compile(r"(?:`|^\s*)make ([a-z]+)\b", re.MULTILINE)

    assert {(p, t) for p in PAGES for t in pattern.findall(text(p)) if t not in targets} == set()


def test_every_link_leads_to_a_file() -> None:
    broken = {
        (p, link) for p in PAGES for link in links(p) if not (ROOT / p.parent / link).exists()
    }

    assert broken == set()


def test_every_file_that_a_guide_names_exists() -> None:
    tops = {file.parts[0] for file in files()}
    pages = "".join(text(Path(page)) for page in ("README.md", "AGENTS.md", "CONTRIBUTING.md"))
    named = re.findall(r"`([\w.-]+/[\w./-]*)`", pages)

    assert [n for n in named if n.split("/")[0] in tops and not (ROOT / n).exists()] == []


def test_every_test_file_that_a_page_names_exists() -> None:
    tests = [file.as_posix() for file in files() if file.parts[0] == "tests"]
    removed = {"tests/repository/test_expand_only.py"}  # the record that suspends it names it
    named = {(p, n) for p in PAGES for n in TEST_FILE.findall(text(p)) if n not in removed}

    assert {(p, n) for p, n in named if not any(fnmatch(f"/{t}", f"*/{n}") for t in tests)} == set()


def test_decision_records_have_one_form_and_fit_a_page() -> None:
    for adr in ADRS:
        lines = adr.read_text().splitlines()

        assert re.fullmatch(r"# \d{4}\. .+", lines[0]), adr
        assert [line[3:] for line in lines if line.startswith("## ")] == HEADINGS, adr
        assert len(lines) <= 70, adr


def test_decision_records_are_numbered_without_gaps() -> None:
    assert [int(adr.name[:4]) for adr in ADRS] == list(range(1, len(ADRS) + 1))


def test_every_key_of_the_troubleshooting_page_is_a_message_of_ours() -> None:
    keys = [key for row in _rows(TROUBLESHOOTING) for key in re.findall("`([^`]+)`", row[0])]

    assert len(keys) > 100
    assert [key for key in keys if len(re.findall("[A-Za-z]", key)) < 4] == []
    assert [key for key in keys if not messages.exists(key)] == []


@pytest.mark.parametrize(
    "names",
    [
        messages.error_codes,
        messages.event_codes,
        messages.line_codes,
        messages.reason_codes,
        messages.command_line_codes,
        messages.log_lines,
        messages.doctors_checks,
    ],
    ids=lambda names: names.__name__,
)
def test_the_troubleshooting_page_leaves_out_none_of_the(names: Callable[[], set[str]]) -> None:
    named = set(re.findall("`([^`]+)`", text(TROUBLESHOOTING)))

    assert names()
    assert names() - named == set()


def test_every_fault_has_a_test_that_exists() -> None:
    rows = _rows(FAULTS)
    named = {row[0]: re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row[-1]) for row in rows}

    assert len(rows) > 30
    assert [fault for fault, tests in named.items() if not tests] == []
    assert [test for tests in named.values() for test in tests if not _is_test(*test)] == []


def test_every_option_of_the_emulator_is_on_its_page_and_no_other() -> None:
    options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", emulator_options.parser().format_help()))
    foreign = {"--endpoint-resource-manager", "--service-principal", "--tenant", "--cacert"}
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text(EMULATOR)))

    assert named - foreign == options - {"--help"}


def test_every_admin_call_of_the_emulator_is_on_its_page_and_no_other() -> None:
    admin = [path for part in emulator_app.PARTS for _, path, _ in part.admin]
    routes = {path for path in admin if path.startswith("/_emulator/")}
    named = set(re.findall(r"/_emulator/[A-Za-z/]+", text(EMULATOR)))

    assert {path.rstrip("/") for path in named} == routes


def test_every_page_is_in_the_navigation() -> None:
    navigation = re.findall(r": ([\w-]+\.md)$", text(Path("mkdocs.yml")), re.MULTILINE)

    assert sorted(navigation) == sorted(page.name for page in ON_SITE)


def test_a_page_begins_with_its_readers() -> None:
    for page in ON_SITE:
        title, first = text(page).split("\n\n")[:2]

        assert (title[:2], first[:4]) == ("# ", "For "), page


def test_no_link_leads_out_of_docs() -> None:
    targets = [(ROOT / page.parent / link).resolve() for page in DOCS for link in links(page)]

    assert [str(t) for t in targets if not t.is_relative_to(ROOT / "docs")] == []


def test_every_concept_is_listed_once_with_a_file_and_a_definition_in_it() -> None:
    rows = [[row[0], row[1].strip("`"), row[2].strip("`")] for row in _rows(CONCEPTS)]
    definitions = {row[1]: _definitions(Path(row[1])) for row in rows if Path(row[1]) in files()}
    concepts = [row[0] for row in rows]

    assert len(rows) >= 90
    assert [row for row in rows if row[2] not in definitions.get(row[1], set())] == []
    assert sorted(concepts) == sorted(set(concepts))


def test_every_threat_names_what_holds_it_and_tests_that_exist() -> None:
    tests = [file for file in python_files() if file.parts[0] == "tests"]
    existing = {name for file in tests for name in re.findall(r"def (test_\w+)", text(file))}
    named = set(re.findall(r"`(test_\w+)`", THREATS))
    rows = [line for line in THREATS.splitlines() if re.match(r"\| (?!what they try|---)", line)]

    assert len(named) > 30
    assert named - existing - {file.stem for file in tests} == set()
    assert [row for row in rows if "`" not in row.split("|")[4]] == []


def _definitions(file: Path) -> set[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {node.name for node in ast.walk(ast.parse(text(file))) if isinstance(node, kinds)}


def _rows(page: Path) -> list[list[str]]:
    """Return the cells of every table row, without headings and rulers."""
    lines = [line for line in text(page).splitlines() if line.startswith("|")]
    rulers = {number for number, line in enumerate(lines) if line.startswith("|---")}
    cells = (line for n, line in enumerate(lines) if not {n, n + 1} & rulers)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in cells]


def _is_test(file: str, name: str) -> bool:
    path = Path(file)
    return path in files() and name in {function.name for function in functions(path)}
