"""Every alert of the service has a section in docs/runbook.md."""

import ast
import re
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
NAME = re.compile(r"[a-z_]+\.[a-z_]+")
LOUD = ("error", "exception", "critical")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def test_every_alert_has_its_section() -> None:
    assert _alerts() - set(_headings()) == set()


def test_every_section_is_about_something_that_the_service_says() -> None:
    source = "".join(file.read_text() for file in (ROOT / "service").rglob("*.py"))
    codes = set(re.findall(r'"([a-z_]+\.[a-z_]+)"', source))

    assert set(_headings()) - codes == set()


@pytest.mark.parametrize(
    ("source", "alerts"),
    [
        ('log.error("a.plain")', {"a.plain"}),
        ('log.warning("a.quiet")', set()),
        ('NAME = "a.constant"\ndef f():\n    log.exception(NAME)', {"a.constant"}),
        ('add("a.loud", level="error")', {"a.loud"}),
        ('add("a.quiet", level="warn")', set()),
        ('Event(code="a.named", level="error")', {"a.named"}),
        (
            'def f(bad):\n    level = "error" if bad else "info"\n    add("a.b", level=level)',
            {"a.b"},
        ),
        ('add("a.bad" if bad else "a.good", level="error" if bad else "info")', {"a.bad"}),
        ('add(f"job.{to}", level="error" if to is State.LOST else "info")', {"job.lost"}),
    ],
)
def test_an_alert_is_found_however_its_name_and_level_are_written(
    source: str, alerts: set[str]
) -> None:
    assert set(_of(ast.parse(source))) == alerts


def _headings() -> list[str]:
    """Return the headings that are the name of an alert."""
    text = (ROOT / "docs/runbook.md").read_text()
    return re.findall(r"^## (\S+)$", text, re.MULTILINE)


def _alerts() -> set[str]:
    return {
        name
        for file in sorted((ROOT / "service").rglob("*.py"))
        for name in _of(ast.parse(file.read_text()))
    }


def _of(tree: ast.Module) -> Iterator[str]:
    """Yield the names of alerts: arguments of log.error and the like, and of level="error" calls.

    Conditional names and levels are evaluated for each combination of their conditions.
    """
    module_names = _assigned(tree.body)
    for scope in (tree, *(n for n in ast.walk(tree) if isinstance(n, _FUNCTIONS))):
        names = (
            module_names | _assigned(list(ast.walk(scope))) if scope is not tree else module_names
        )
        for call in (n for n in ast.walk(scope) if isinstance(n, ast.Call)):
            yield from _loud(call, names)


def _assigned(nodes: Sequence[ast.AST]) -> dict[str, ast.expr]:
    """Return the assigned value of each simple name."""
    return {
        target.id: node.value
        for node in nodes
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _loud(call: ast.Call, names: dict[str, ast.expr]) -> Iterator[str]:
    """Yield the names that a call has in all cases in which it is an alert."""
    verb = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    level = next((k.value for k in call.keywords if k.arg == "level"), ast.Constant(""))
    arguments = [*call.args, *(k.value for k in call.keywords if k.arg == "code")]
    level, *arguments = (
        names.get(a.id, a) if isinstance(a, ast.Name) else a for a in (level, *arguments)
    )
    for case in _cases([level, *arguments]):
        if verb in LOUD or "error" in _texts(level, case):
            yield from (t for a in arguments for t in _texts(a, case) if NAME.fullmatch(t))


def _cases(values: Sequence[ast.expr]) -> Iterator[dict[str, bool]]:
    """Yield every combination of truth values of the conditions in ``values``."""
    ifs = [n for value in values for n in ast.walk(value) if isinstance(n, ast.IfExp)]
    tests = sorted({ast.unparse(n.test) for n in ifs})
    for truths in product((True, False), repeat=len(tests)):
        yield dict(zip(tests, truths, strict=True))


def _texts(value: ast.expr, case: dict[str, bool]) -> Iterator[str]:
    """Yield the text that a value has in this case, if it is a text.

    A hole of an f-string is filled from a true condition: ``step.to is JobState.FAILED`` gives
    "failed".
    """
    while isinstance(value, ast.IfExp):
        value = value.body if case[ast.unparse(value.test)] else value.orelse
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value.value
    elif isinstance(value, ast.JoinedStr):
        text = ast.unparse(value)[2:-1]
        for test in (test for test, is_so in case.items() if is_so):
            hole, _, state = test.partition(" is ")
            text = text.replace(f"{{{hole}}}", state.rpartition(".")[2].lower())
        yield text
