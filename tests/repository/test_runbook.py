"""Every alert that the service can raise has its section in docs/runbook.md."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAME = re.compile(r"[a-z_]+\.[a-z_]+")
LOUD = ("error", "exception", "critical")


def test_every_alert_has_its_section() -> None:
    assert _alerts() - set(_headings()) == set()


def test_every_section_is_about_something_that_the_service_says() -> None:
    source = "".join(file.read_text() for file in (ROOT / "service").rglob("*.py"))
    said = {*re.findall(r'"([a-z_]+\.[a-z_]+)"', source), "job.failed"}

    assert set(_headings()) - said == set()


def _headings() -> list[str]:
    """Those that are a name; the others are about something else."""
    text = (ROOT / "docs/runbook.md").read_text()
    return re.findall(r"^## (\S+)$", text, re.MULTILINE)


def _alerts() -> set[str]:
    return {
        name
        for file in sorted((ROOT / "service").rglob("*.py"))
        for name in _of(ast.parse(file.read_text()))
    }


def _of(tree: ast.Module) -> Iterator[str]:
    """Names given to log.error and its like, and to events.add with level error.

    The one event whose level depends is job.failed.
    """
    constants = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for call in (n for n in ast.walk(tree) if isinstance(n, ast.Call)):
        verb = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        levels = [k.value for k in call.keywords if k.arg == "level"]
        loud = any(isinstance(v, ast.Constant) and v.value == "error" for v in levels)
        if verb in LOUD or (verb == "add" and loud):
            arguments = [
                constants.get(a.id, a) if isinstance(a, ast.Name) else a for a in call.args
            ]
            texts = [a.value for a in arguments if isinstance(a, ast.Constant)]
            yield from (t for t in texts if isinstance(t, str) and NAME.fullmatch(t))
    if any(isinstance(n, ast.Constant) and n.value == "error" for n in ast.walk(tree)) and (
        "JobState.FAILED" in ast.unparse(tree) and "def move" in ast.unparse(tree)
    ):
        yield "job.failed"
