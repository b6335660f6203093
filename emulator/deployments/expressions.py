"""The language between `[` and `]` in a template: parsed into a tree, evaluated in a scope."""

from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedToken, v_args

GRAMMAR = r"""
?start: STRING -> string
      | INTEGER -> number
      | NAME "(" [start ("," start)*] ")" -> call
      | start "." NAME -> member
      | start "[" start "]" -> element
STRING: /'([^']|'')*'/
INTEGER: /-?[0-9]+/
NAME: /[A-Za-z_]\w*/
%ignore /\s+/
"""


class TemplateError(Exception):
    """Something in a template makes no sense."""


class NotYet(Exception):
    """The value depends on a resource that is not there yet."""


@dataclass(frozen=True)
class Literal:
    """A string or a number."""

    value: str | int


@dataclass(frozen=True)
class FunctionCall:
    """A function with its arguments."""

    name: str
    arguments: tuple["Node", ...]


@dataclass(frozen=True)
class MemberAccess:
    """A member of an object or an element of an array."""

    target: "Node"
    key: "Node"


Node = Literal | FunctionCall | MemberAccess


class FunctionScope(Protocol):
    """Where names have their meaning."""

    def call(self, name: str, values: list[Any]) -> Any:  # noqa: ANN401 - JSON
        """Return the value of a function."""
        ...


def evaluate(value: Any, scope: FunctionScope) -> Any:  # noqa: ANN401 - JSON
    """Return the value with every expression in it evaluated, at any depth."""
    if isinstance(value, str):
        return evaluate_text(value, scope)
    if isinstance(value, list):
        return [evaluate(item, scope) for item in value]
    if isinstance(value, dict):
        return {evaluate_text(k, scope): evaluate(v, scope) for k, v in value.items()}
    return value


def is_expression(text: str) -> bool:
    """Whether a string is an expression and not just a string."""
    return text.startswith("[") and text.endswith("]") and not text.startswith("[[")


def evaluate_text(text: str, scope: FunctionScope) -> Any:  # noqa: ANN401 - JSON
    """Return the value of one string."""
    if text.startswith("[["):
        return text[1:]
    if not is_expression(text):
        return text
    try:
        return _value(parse(text[1:-1]), scope)
    except RecursionError:
        raise TemplateError("The language expression is nested too deeply.") from None


def parse(text: str) -> Node:
    """Return the tree of an expression, or raise TemplateError."""
    try:
        tree: Any = _parser().parse(text)
    except UnexpectedToken as error:
        token = "end of expression" if error.token.type == "$END" else error.token
        raise TemplateError(
            f"The language expression '{text}' is not valid: the string token '{token}' was not "
            "expected."
        ) from None
    except UnexpectedCharacters as error:
        raise TemplateError(
            f"Unable to parse language expression '{text}': unexpected token '{error.char}' at "
            f"position '{error.pos_in_stream}'."
        ) from None
    node: Node = tree
    return node


@cache
def _parser() -> Lark:
    return Lark(
        GRAMMAR, parser="lalr", lexer="basic", transformer=_Nodes(), maybe_placeholders=False
    )


@v_args(inline=True)
class _Nodes(Transformer[Token, Node]):
    """Makes a node of each rule of the grammar."""

    def string(self, token: Token) -> Node:
        """Return a string without its quotes."""
        return Literal(token[1:-1].replace("''", "'"))

    def number(self, token: Token) -> Node:
        """Return an integer."""
        return Literal(int(token))

    def call(self, name: Token, *arguments: Node) -> Node:
        """Return the call of a function."""
        return FunctionCall(str(name), arguments)

    def member(self, target: Node, name: Token) -> Node:
        """Return the member of an object."""
        return MemberAccess(target, Literal(str(name)))

    def element(self, target: Node, key: Node) -> Node:
        """Return the element of an array or an object."""
        return MemberAccess(target, key)


def _value(node: Node, scope: FunctionScope) -> Any:  # noqa: ANN401 - JSON
    if isinstance(node, Literal):
        return node.value
    if isinstance(node, FunctionCall):
        return scope.call(node.name, [_value(argument, scope) for argument in node.arguments])
    return _member(_value(node.target, scope), _value(node.key, scope))


def _member(target: Any, key: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(target, dict):
        matches = [name for name in target if name.lower() == str(key).lower()]
        if matches:
            return target[key if key in target else matches[0]]
        message = (
            f"The language expression property '{key}' doesn't exist, available properties are "
            f"'{', '.join(target)}'."
        )
    elif isinstance(target, list) and isinstance(key, int):
        if 0 <= key < len(target):
            return target[key]
        message = f"The language expression property array index '{key}' is out of bounds."
    else:
        message = (
            f"The language expression property '{key}' can't be evaluated: its target is neither "
            "an object nor an array."
        )
    raise TemplateError(message)
