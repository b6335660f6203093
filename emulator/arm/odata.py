"""$filter: `field eq 'value'`, any number of them joined by `and`, and no more."""

import re
from collections.abc import Callable, Mapping
from typing import Any

Row = Mapping[str, Any]
Test = Callable[[Row], bool]
CLAUSE = re.compile(r"\s*([\w/]+)\s+eq\s+'((?:[^']|'')*)'\s*", re.IGNORECASE)
MOST = 20  # comparisons in one filter; somebody counted


class BadFilter(Exception):
    """The filter cannot be read; the real ones tell no more than that."""


def parse(text: str, fields: Mapping[str, str], *, fold: bool) -> Test:
    """Return the filter as a test of rows; ``fields`` maps names in lower case to members."""
    wanted: list[tuple[str, str]] = []
    for clause in re.split(r"\band\b(?=(?:[^']*'[^']*')*[^']*$)", text, flags=re.IGNORECASE):
        found = CLAUSE.fullmatch(clause)
        name = fields.get(found[1].lower()) if found else None
        if found is None or name is None or len(wanted) == MOST:
            raise BadFilter
        wanted.append((name, _case(found[2].replace("''", "'"), fold=fold)))
    return lambda row: all(_case(row.get(name), fold=fold) == value for name, value in wanted)


def _case(value: object, *, fold: bool) -> str:
    text = "" if value is None else str(value)
    return text.lower() if fold else text
