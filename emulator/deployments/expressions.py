"""The language between `[` and `]` in a template: parsed into a tree, evaluated in a scope."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

_TOKEN = re.compile(r"\s*(?:('(?:[^']|'')*')|(-?\d+)|([A-Za-z_]\w*)|([().,\[\]]))")
DEEPEST = 100  # levels of nesting


class TemplateError(Exception):
    """Something in a template makes no sense."""


class NotYet(Exception):
    """The value depends on a resource that is not there yet."""


@dataclass(frozen=True)
class Literal:
    """A string or a number."""

    value: str | int


@dataclass(frozen=True)
class Call:
    """A function with its arguments."""

    name: str
    arguments: tuple["Node", ...]


@dataclass(frozen=True)
class Member:
    """A member of an object or an element of an array."""

    target: "Node"
    key: "Node"


Node = Literal | Call | Member


class Scope(Protocol):
    """Where names have their meaning."""

    def call(self, name: str, arguments: list[Callable[[], Any]]) -> Any:  # noqa: ANN401 - JSON
        """The value of a function; it evaluates those arguments that it needs."""
        ...


def evaluate(value: Any, scope: Scope) -> Any:  # noqa: ANN401 - JSON
    """The value with every expression in it replaced, whatever its depth."""
    if isinstance(value, str):
        return evaluate_text(value, scope)
    if isinstance(value, list):
        return [evaluate(part, scope) for part in value]
    if isinstance(value, dict):
        return {evaluate_text(k, scope): evaluate(v, scope) for k, v in value.items()}
    return value


def is_expression(text: str) -> bool:
    """Whether a string is an expression and not just a string."""
    return text.startswith("[") and text.endswith("]") and not text.startswith("[[")


def evaluate_text(text: str, scope: Scope) -> Any:  # noqa: ANN401 - JSON
    """The value of one string."""
    if text.startswith("[["):
        return text[1:]
    return _value(parse(text[1:-1]), scope) if is_expression(text) else text


def parse(text: str) -> Node:
    """Read an expression, or raise TemplateError."""
    tokens = _Tokens(text)
    node = _node(tokens, 0)
    if tokens.now:
        raise tokens.unexpected()
    return node


class _Tokens:
    """The tokens of an expression; ``now`` is empty at the end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._rest = self._split()
        self.now = ""
        self.next()

    def next(self) -> str:
        """Step on and return the token that was there."""
        before = self.now
        self.now = next(self._rest, "")
        return before

    def expect(self, *wanted: str) -> str:
        """Step over one of these tokens."""
        if self.now not in wanted:
            raise self.unexpected()
        return self.next()

    def unexpected(self) -> TemplateError:
        """The complaint about the token that is there."""
        return TemplateError(
            f"The language expression '{self._text}' is not valid: the string token "
            f"'{self.now or 'end of expression'}' was not expected."
        )

    def _split(self) -> Iterator[str]:
        place, text = 0, self._text.rstrip()
        while place < len(text):
            found = _TOKEN.match(text, place)
            if found is None:
                raise TemplateError(
                    f"Unable to parse language expression '{self._text}': unexpected token "
                    f"'{text[place]}' at position '{place}'."
                )
            place = found.end()
            yield found[found.lastindex or 0]


def _node(tokens: _Tokens, depth: int) -> Node:
    if depth > DEEPEST:
        raise TemplateError("The language expression is nested too deeply.")
    node = _primary(tokens, depth)
    while tokens.now in (".", "["):
        if tokens.next() == ".":
            if not re.fullmatch(r"[A-Za-z_]\w*", tokens.now):
                raise tokens.unexpected()
            key: Node = Literal(tokens.next())
        else:
            key = _node(tokens, depth + 1)
            tokens.expect("]")
        node = Member(node, key)
    return node


def _primary(tokens: _Tokens, depth: int) -> Node:
    if tokens.now.startswith("'"):
        return Literal(tokens.next()[1:-1].replace("''", "'"))
    if re.fullmatch(r"-?\d+", tokens.now):
        return Literal(int(tokens.next()))
    if not re.fullmatch(r"[A-Za-z_]\w*", tokens.now):
        raise tokens.unexpected()
    name = tokens.next()
    tokens.expect("(")
    arguments: list[Node] = []
    while tokens.now != ")":
        arguments.append(_node(tokens, depth + 1))
        if tokens.now != ")":
            tokens.expect(",")
            if tokens.now == ")":
                raise tokens.unexpected()
    tokens.next()
    return Call(name, tuple(arguments))


def _value(node: Node, scope: Scope) -> Any:  # noqa: ANN401 - JSON
    if isinstance(node, Literal):
        return node.value
    if isinstance(node, Call):
        return scope.call(node.name, [_later(part, scope) for part in node.arguments])
    return _member(_value(node.target, scope), _value(node.key, scope))


def _later(node: Node, scope: Scope) -> Callable[[], Any]:
    return lambda: _value(node, scope)


def _member(target: Any, key: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(target, dict):
        same = [name for name in target if name.lower() == str(key).lower()]
        if same:
            return target[key if key in target else same[0]]
        wrong = (
            f"The language expression property '{key}' doesn't exist, available properties are "
            f"'{', '.join(target)}'."
        )
    elif isinstance(target, list) and isinstance(key, int):
        if 0 <= key < len(target):
            return target[key]
        wrong = f"The language expression property array index '{key}' is out of bounds."
    else:
        wrong = (
            f"The language expression property '{key}' can't be evaluated: its target is neither "
            "an object nor an array."
        )
    raise TemplateError(wrong)
