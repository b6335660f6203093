"""$filter: eq, ne, functions of texts, and, or, parentheses. Who asks says which there are."""

import re
from collections.abc import Callable, Mapping
from typing import Any

Row = Mapping[str, Any]
Test = Callable[[Row], bool]
WORD = re.compile(r"\s*('(?:[^']|'')*'|\w+(?:/\w+)*|[(),])")
FUNCTIONS: dict[str, Callable[[str, str], bool]] = {
    "contains": lambda text, part: part in text,
    "startswith": str.startswith,
    "substringof": lambda text, part: part in text,  # names the part first
}
MOST = 20  # comparisons in one filter; somebody counted
DEEPEST = 20  # parentheses in parentheses


class BadFilter(Exception):
    """The filter cannot be read; the real ones tell no more than that."""


def parse(text: str, fields: Mapping[str, str], functions: tuple[str, ...], *, fold: bool) -> Test:
    """The filter as a test of rows. ``fields`` are the names in a filter, in lower case."""
    reader = _Reader(_words(text), fields, functions, fold=fold)
    test = reader.either(0)
    reader.take("")
    return test


def _words(text: str) -> list[str]:
    found, at, text = [], 0, text.rstrip()
    while at < len(text):
        match = WORD.match(text, at)
        if match is None:
            raise BadFilter
        found.append(match[1])
        at = match.end()
    return [*found, ""]


class _Reader:
    def __init__(
        self,
        words: list[str],
        fields: Mapping[str, str],
        functions: tuple[str, ...],
        *,
        fold: bool,
    ) -> None:
        self._words = words
        self._fields = fields
        self._functions = functions
        self._fold = fold
        self._count = 0

    def either(self, depth: int) -> Test:
        parts = [self._both(depth)]
        while self._sees("or"):
            self._words.pop(0)
            parts.append(self._both(depth))
        return lambda row: any(part(row) for part in parts)

    def take(self, word: str) -> None:
        if not self._words or self._words.pop(0).lower() != word:
            raise BadFilter

    def _both(self, depth: int) -> Test:
        parts = [self._one(depth)]
        while self._sees("and"):
            self._words.pop(0)
            parts.append(self._one(depth))
        return lambda row: all(part(row) for part in parts)

    def _sees(self, *words: str) -> bool:
        return self._words[0].lower() in words

    def _one(self, depth: int) -> Test:
        if self._sees("("):
            if depth == DEEPEST:
                raise BadFilter
            self.take("(")
            test = self.either(depth + 1)
            self.take(")")
            return test
        self._count += 1
        if self._count > MOST:
            raise BadFilter
        return self._called() if self._sees(*self._functions) else self._compared()

    def _called(self) -> Test:
        name = self._words.pop(0).lower()
        function = FUNCTIONS[name]
        self.take("(")
        if name == "substringof":
            value = self._value()
            self.take(",")
            field = self._field()
        else:
            field = self._field()
            self.take(",")
            value = self._value()
        self.take(")")
        return lambda row: function(self._case(row.get(field)), value)

    def _compared(self) -> Test:
        field = self._field()
        operator = self._words.pop(0).lower()
        if operator not in ("eq", "ne"):
            raise BadFilter
        value = self._value()
        return lambda row: (self._case(row.get(field)) == value) is (operator == "eq")

    def _field(self) -> str:
        found = self._fields.get(self._words.pop(0).lower())
        if found is None:
            raise BadFilter
        return found

    def _value(self) -> str:
        word = self._words.pop(0)
        if not word.startswith("'"):
            raise BadFilter
        return self._case(word[1:-1].replace("''", "'"))

    def _case(self, value: object) -> str:
        text = "" if value is None else str(value)
        return text.lower() if self._fold else text
