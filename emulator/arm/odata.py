"""$filter: `field eq 'value'`, any number of them joined by `and`, and no more; and $top."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from starlette.requests import Request

from emulator.core.errors import invalid

Row = Mapping[str, Any]
Test = Callable[[Row], bool]
CLAUSE = re.compile(r"\s*([\w/]+)\s+eq\s+'((?:[^']|'')*)'\s*", re.IGNORECASE)
MAX_CLAUSES = 20  # comparisons in one filter, by a user's count
FIELDS = {
    "resourcetype": "type",
    "name": "name",
    "location": "location",
    "resourcegroup": "group",  # `az resource list -g` asks so
}
TAG = re.compile(
    r"\s*tagName\s+eq\s+'(?P<name>[^']*)'(?:\s+and\s+tagValue\s+eq\s+'(?P<value>[^']*)')?\s*",
    re.IGNORECASE,
)


class BadFilter(Exception):
    """The filter cannot be read; the real ones tell no more than that."""


def parse(text: str, fields: Mapping[str, str], *, fold: bool) -> Test:
    """Return the filter as a test of rows; ``fields`` maps names in lower case to members."""
    criteria: list[tuple[str, str]] = []
    for clause in re.split(r"\band\b(?=(?:[^']*'[^']*')*[^']*$)", text, flags=re.IGNORECASE):
        match = CLAUSE.fullmatch(clause)
        name = fields.get(match[1].lower()) if match else None
        if match is None or name is None or len(criteria) == MAX_CLAUSES:
            raise BadFilter
        criteria.append((name, _case(match[2].replace("''", "'"), fold=fold)))
    return lambda row: all(_case(row.get(name), fold=fold) == value for name, value in criteria)


def _case(value: object, *, fold: bool) -> str:
    text = "" if value is None else str(value)
    return text.lower() if fold else text


def narrowed(request: Request, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of the rows that the request asks for."""
    query = request.query_params
    if text := query.get("$filter", "").strip():
        fits = _test(text)
        rows = [row for row in rows if fits(row)]
    top = query.get("$top")
    if top is None:
        return rows
    if not (top.isascii() and top.isdigit() and int(top)):
        raise invalid(f"The value '{top}' of the query parameter '$top' is invalid.", "InvalidTop")
    return rows[: int(top)]


def _test(text: str) -> Test:
    """Return a filter as a test of rows: by tag, or by other members, which Azure does not mix."""
    if match := TAG.fullmatch(text):
        return _test_of_tags(match)
    try:
        test = parse(text, FIELDS, fold=True)
    except BadFilter:
        text = f"Invalid $filter '{text}' specified in the query string."
        raise invalid(text, "InvalidFilterInQueryString") from None
    return lambda row: test({**row, "group": str(row.get("id", "")).split("/")[4]})


def _test_of_tags(match: re.Match[str]) -> Test:
    name, value = (text and text.lower() for text in match.group("name", "value"))

    def fits(row: Row) -> bool:
        tags = {str(k).lower(): str(v).lower() for k, v in (row.get("tags") or {}).items()}
        return name in tags and value in (None, tags[name])

    return fits
