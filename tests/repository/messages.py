"""All messages and codes that users and operators may see, extracted from the source."""

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from service.domain import errors
from service.domain.errors import ServiceError
from service.domain.states import AttemptState, JobState
from tests.repository.sources import FunctionNode, python_files, text

VARIES = "\0"  # stands for an f-string's values
_TOLD = ("rendering", "service", "trainer", "rekindle")
_EVENT = re.compile(r"(attempt|node|generation|checkpoint|job|file|storage)\.[a-z_]+")
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def templates() -> tuple[str, ...]:
    """Return every text that a program may print, without docstrings."""
    texts = {text(Path("Makefile")), *(f"job.{s}" for s in JobState)}
    texts |= {f"attempt.{s}" for s in AttemptState}
    for tree in (tree for top in _TOLD for tree in _trees(top)):
        texts |= set(_texts(tree))
    return tuple(sorted(texts))


def exists(key: str) -> bool:
    """Return whether a text matches ``key``, in which ``...`` stands for any text."""
    pieces = [piece for piece in key.split("...") if piece.strip()]
    pattern = re.compile(".*".join(map(re.escape, pieces)), re.DOTALL)
    return any(pattern.search(template) for template in templates())


def error_codes() -> set[str]:
    """Return the codes of the API's error envelope."""
    declared = {kind.code for kind in _kinds(ServiceError) if kind.__module__ == errors.__name__}
    keyword_codes = {code for tree in _trees("service") for code in _keyword(tree, "code")}
    answered = _constants(ast.parse(text(Path("service/api/http/failures.py"))))
    routing = {c for c in answered if re.fullmatch("unknown_url|method_not_.*", c)}
    return declared | routing | {c for c in keyword_codes if re.fullmatch("[a-z]+(_[a-z]+)+", c)}


def event_codes() -> set[str]:
    """Return the codes of events with level warn or error; those of files have no ``file.``."""
    codes = {"attempt.terminating", "job.failed"}
    for function in (node for tree in _trees("service") for node in ast.walk(tree)):
        if isinstance(function, FunctionNode):
            calls = _calls(function, "add", "new_event")
            if any(k.arg == "level" for call in calls for k in call.keywords):
                codes |= {c for c in _constants(function) if _EVENT.fullmatch(c)}
    return codes


def line_codes() -> set[str]:
    """Return the codes of errors and warnings about a line of a training file."""
    trees = (*_trees("service"), *_trees("rendering"))
    calls = (c for tree in trees for c in _calls(tree, *_FINDERS))
    return {code for call in calls if call.args for code in _constants(call.args[0])}


def reason_codes() -> set[str]:
    """Return the codes of status_reason."""
    calls = _calls(
        ast.parse(text(Path("service/domain/reporting/status_message.py"))), "StatusMessage"
    )
    return {code for call in calls for code in _constants(call.args[1])}


def command_line_codes() -> set[str]:
    """Return the codes of the command line's own errors."""
    return {code for tree in _trees("rekindle") for code in _keyword(tree, "code")}


def log_lines() -> set[str]:
    """Return the log events of level warning or above."""
    calls = (c for tree in _trees("service") for c in _calls(tree, *_LEVELS))
    return {code for call in calls if call.args for code in _constants(call.args[0])}


def doctors_checks() -> set[str]:
    """Return the checks of `rekindle doctor` that may fail or warn."""
    calls = (c for tree in _trees("rekindle") for c in _calls(tree, *_VERDICTS))
    return {name for call in calls if call.args for name in _constants(call.args[0])}


_FINDERS = ("DatasetProblem", "_warn")
_LEVELS = ("warning", "error", "exception")
_VERDICTS = ("failed_check", "doubtful_check")


def _kinds(kind: type[ServiceError]) -> Iterator[type[ServiceError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _kinds(child)


@cache
def _trees(top: str) -> tuple[ast.Module, ...]:
    return tuple(ast.parse(text(file)) for file in python_files() if file.parts[0] == top)


def _calls(tree: ast.AST, *names: str) -> list[ast.Call]:
    """Return the calls of functions or methods with one of these names."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return [c for c in calls if getattr(c.func, "attr", getattr(c.func, "id", "")) in names]


def _keyword(tree: ast.AST, name: str) -> Iterator[str]:
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    for keyword in (k for call in calls for k in call.keywords if k.arg == name):
        yield from _constants(keyword.value)


def _constants(tree: ast.AST) -> set[str]:
    """Return all complete string literals in a tree, without parts of f-strings."""
    pieces = {id(v) for n in ast.walk(tree) if isinstance(n, ast.JoinedStr) for v in n.values}
    constants = (n for n in ast.walk(tree) if isinstance(n, ast.Constant) and id(n) not in pieces)
    return {n.value for n in constants if isinstance(n.value, str) and n.value}


def _texts(tree: ast.AST) -> Iterable[str]:
    skipped = set(_docstrings(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in skipped:
                yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(
                str(v.value) if isinstance(v, ast.Constant) else VARIES for v in node.values
            )


def _docstrings(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and node.body and isinstance(node.body[0], ast.Expr):
            yield id(node.body[0].value)
