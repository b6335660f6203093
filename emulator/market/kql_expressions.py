"""Expressions of Resource Graph's query language: read once, then asked of row after row."""

from collections.abc import Callable
from dataclasses import dataclass

from emulator.market.kql_tokens import QueryError, Token, parser_failure, tokens
from emulator.market.kql_values import (
    COMPARISONS,
    FUNCTIONS,
    MEMBERSHIP,
    Value,
    call,
    number,
    whole,
)

Row = dict[str, Value]
Expression = Callable[[Row], Value]
CONSTANTS = {"true": True, "false": False, "null": None}
DEEPEST = 50  # parentheses in parentheses


@dataclass(frozen=True)
class Named:
    """An expression and the name of the column that it makes."""

    name: str
    value: Expression


class Reader:
    """Goes over the words of one query."""

    def __init__(self, query: str) -> None:
        self._query = query
        self._tokens = tokens(query)
        self._at = 0
        self._depth = 0

    @property
    def next(self) -> Token:
        """The word that comes."""
        return self._tokens[self._at]

    def sees(self, *words: str) -> bool:
        """Whether one of these words comes; a string is never one."""
        return self.next.kind != "string" and self.next.text in words

    def take(self, *words: str) -> bool:
        """Go over the word if it is one of these."""
        seen = self.sees(*words)
        self._at += seen
        return seen

    def need(self, *words: str) -> str:
        """Go over one of these words, or refuse the query."""
        if not self.sees(*words):
            raise self.failure(words[0])
        self._at += 1
        return self._tokens[self._at - 1].text

    def word(self, kind: str = "name") -> str:
        """Go over a word of this kind, or refuse the query."""
        if self.next.kind != kind:
            raise self.failure()
        self._at += 1
        return self._tokens[self._at - 1].text

    def failure(self, expected: str = "") -> QueryError:
        """The refusal of what comes."""
        return parser_failure(self._query, self.next.at, self.next.text, expected)

    def named(self) -> Named:
        """An expression, with ``name =`` before it or named after what it shows."""
        following = self._tokens[min(self._at + 1, len(self._tokens) - 1)]
        if self.next.kind == "name" and (following.kind, following.text) == ("sign", "="):
            name = self.word()
            self.need("=")
            return Named(name, self.expression().value)
        return self.expression()

    def expression(self) -> Named:
        """Anything with a value: ``or`` binds least."""
        self._depth += 1
        if self._depth > DEEPEST:
            raise self.failure()
        left = self._and()
        while self.take("or"):
            left = _either(left.value, self._and().value)
        self._depth -= 1
        return left

    def _and(self) -> Named:
        left = self._comparison()
        while self.take("and"):
            left = _both(left.value, self._comparison().value)
        return left

    def _comparison(self) -> Named:
        left = self._sum()
        if self.sees(*COMPARISONS):
            test = COMPARISONS[self.need(*COMPARISONS)]
            return _compared(test, left.value, self._sum().value)
        if self.sees(*MEMBERSHIP):
            test, wanted = MEMBERSHIP[self.need(*MEMBERSHIP)]
            self.need("(")
            return _member(test, left.value, self._list(")"), wanted=wanted)
        return left

    def _sum(self) -> Named:
        left = self._primary()
        while self.sees("+", "-", "*", "/"):  # from left to right: no query here needs more
            left = _calculated(self.need("+", "-", "*", "/"), left.value, self._primary().value)
        return left

    def _primary(self) -> Named:
        if self.take("("):
            inner = self.expression()
            self.need(")")
            return inner
        if self.next.kind == "string":
            return _constant(self.word("string"))
        if self.take("-"):
            return _constant(-float(self.word("number")))
        if self.next.kind == "number":
            digits = self.word("number")
            return _constant(float(digits) if "." in digits else int(digits))
        name = self.word()
        if self.take("("):
            return self._called(name)
        if name in CONSTANTS:
            return _constant(CONSTANTS[name])
        return self._path(_column(name))

    def _called(self, name: str) -> Named:
        arguments = self._list(")")
        if name not in FUNCTIONS:
            raise unknown(f"function '{name}'")
        inner = arguments[0].name if len(arguments) == 1 else ""
        made = Named(inner, lambda row: call(name, [a.value(row) for a in arguments]))
        return self._path(made)

    def _list(self, end: str) -> list[Named]:
        found: list[Named] = []
        while not self.take(end):
            if found:
                self.need(",")
            found.append(self.expression())
        return found

    def _path(self, start: Named) -> Named:
        """What lies inside: `.member` and `[0]` or `['member']`."""
        while self.sees(".", "["):
            if self.take("."):
                start = _member_of(start, self.word())
                continue
            self.need("[")
            key: str | int = self.word("string") if self.next.kind == "string" else self._index()
            self.need("]")
            start = _member_of(start, key)
        return start

    def _index(self) -> int:
        return -int(self.word("number")) if self.take("-") else int(self.word("number"))


def unknown(what: str) -> QueryError:
    """The query names something that is not there."""
    message = f"Failed to resolve {what}."
    return QueryError({"code": "InvalidQuery", "message": message})


def _column(name: str) -> Named:
    def value(row: Row) -> Value:
        if name not in row:
            raise unknown(f"scalar expression named '{name}'")
        return row[name]

    return Named(name, value)


def _member_of(outer: Named, key: str | int) -> Named:
    def value(row: Row) -> Value:
        inside = outer.value(row)
        if isinstance(key, int):
            fits = isinstance(inside, list) and -len(inside) <= key < len(inside)
            return inside[key] if fits else None
        return inside.get(key) if isinstance(inside, dict) else None

    name = f"{outer.name}_{key}" if outer.name and isinstance(key, str) else outer.name
    return Named(name, value)


def _constant(value: Value) -> Named:
    return Named("", lambda _row: value)


def _either(left: Expression, right: Expression) -> Named:
    return Named("", lambda row: bool(left(row)) or bool(right(row)))


def _both(left: Expression, right: Expression) -> Named:
    return Named("", lambda row: bool(left(row)) and bool(right(row)))


def _compared(test: Callable[[Value, Value], bool], left: Expression, right: Expression) -> Named:
    return Named("", lambda row: test(left(row), right(row)))


def _member(
    test: Callable[[Value, Value], bool], left: Expression, among: list[Named], *, wanted: bool
) -> Named:
    def value(row: Row) -> bool:
        mine = left(row)
        return any(test(mine, other.value(row)) for other in among) is wanted

    return Named("", value)


def _calculated(sign: str, left: Expression, right: Expression) -> Named:
    def value(row: Row) -> Value:
        a, b = number(left(row)), number(right(row))
        if a is None or b is None or (sign == "/" and b == 0):
            return None
        result = {"+": a + b, "-": a - b, "*": a * b}.get(sign, a / b if b else 0.0)
        return whole(result) if sign != "/" and result.is_integer() else number(result)

    return Named("", value)
