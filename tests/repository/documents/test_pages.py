"""Generated pages are current, and pages name only what exists."""

import ast
import re
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

from contract.job_events import JOB_EVENTS
from service.domain.states import AttemptState, JobState
from service.settings import Settings
from tests.repository import messages
from tests.repository.pages.everything import PAGES
from tests.repository.pages.settings import GROUPS
from tests.repository.sources import ROOT, files, python_files, text

VARIABLE = re.compile(r"REKINDLE_[A-Z_]+[A-Z]")
MODULE = re.compile(r"python -m ([a-z_]+(?:\.[a-z_]+)*)")
WRITTEN = [file for file in files() if file.suffix == ".md" and file.parts[0] != "tests"]


@pytest.mark.parametrize("module", PAGES, ids=lambda module: module.PAGE.name)
def test_a_generated_page_is_what_the_code_says(module: ModuleType) -> None:
    assert module.PAGE.read_text() == module.page(), "run make docs"


def test_every_group_of_settings_begins_with_a_setting() -> None:
    assert set(GROUPS) - set(Settings.model_fields) == set()


def test_every_variable_that_a_page_names_is_a_setting_or_read_by_a_program() -> None:
    programs = [file for file in files() if file.suffix in (".py", ".yaml", ".ts", ".tsx")]
    variables = {f"REKINDLE_{name.upper()}" for name in Settings.model_fields}
    variables |= {name for file in programs for name in VARIABLE.findall(text(file))}

    wrong = {page: set(VARIABLE.findall(text(page))) - variables for page in WRITTEN}
    assert {page: names for page, names in wrong.items() if names} == {}


def test_every_event_that_the_service_writes_is_declared() -> None:
    moves = {f"job.{state}" for state in JobState} | {f"attempt.{state}" for state in AttemptState}
    never = {"job.validating", "attempt.pending"}  # where both begin
    called = set(_event_codes_in_calls())

    assert {"job.created", "job.budget_exhausted"} <= called, "the search still finds calls"
    assert (called | messages.event_codes() | moves) - never - set(JOB_EVENTS) == set()


def test_every_declared_event_is_written_somewhere() -> None:
    written = {c for f in _service() for c in re.findall(r'"([a-z]+\.[a-z_]+)"', text(f))}
    moves = {f"job.{state}" for state in JobState} | {f"attempt.{state}" for state in AttemptState}
    requested = {f"job.{verb}_requested" for verb in ("cancel", "pause", "resume")}

    assert set(JOB_EVENTS) - written - moves - requested == set()


def test_every_module_that_a_page_runs_has_a_main() -> None:
    named = {(page, name) for page in WRITTEN for name in MODULE.findall(text(page))}

    assert {(page, name) for page, name in named if not _has_main(name)} == set()


def _event_codes_in_calls() -> Iterator[str]:
    """Yield the codes in calls of `add` or `new_event` of events."""
    for file in _service():
        for node in ast.walk(ast.parse(text(file))):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in (
                "add",
                "new_event",
            ):
                for argument in (a for a in node.args if isinstance(a, ast.Constant)):
                    if re.fullmatch(r"[a-z]+\.[a-z_]+", str(argument.value)):
                        yield str(argument.value)


def _service() -> list[Path]:
    return [file for file in python_files() if file.parts[0] == "service"]


def _has_main(name: str) -> bool:
    if name.partition(".")[0] in sys.stdlib_module_names:
        return True
    path = Path(*name.split("."))
    file = path / "__main__.py" if (ROOT / path).is_dir() else path.with_suffix(".py")
    if not (ROOT / file).is_file():
        return find_spec(name.partition(".")[0]) is not None and not (ROOT / path.parts[0]).exists()
    return file.name == "__main__.py" or "__main__" in text(file)
