"""$filter and $top of the lists of resources and resource groups."""

import re
from collections.abc import Callable
from typing import Any

from starlette.requests import Request

from emulator.arm import odata
from emulator.core.errors import invalid

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
Row = dict[str, Any]


def narrowed(request: Request, rows: list[Row]) -> list[Row]:
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


def _test(text: str) -> Callable[[Row], bool]:
    """Return a filter as a test of rows: by tag, or by other members, which Azure does not mix."""
    if found := TAG.fullmatch(text):
        return _test_of_tags(found)
    try:
        wanted = odata.parse(text, FIELDS, fold=True)
    except odata.BadFilter:
        text = f"Invalid $filter '{text}' specified in the query string."
        raise invalid(text, "InvalidFilterInQueryString") from None
    return lambda row: wanted(row | {"group": str(row.get("id", "")).split("/")[4]})


def _test_of_tags(found: re.Match[str]) -> Callable[[Row], bool]:
    name, value = (text and text.lower() for text in found.group("name", "value"))

    def fits(row: Row) -> bool:
        tags = {str(k).lower(): str(v).lower() for k, v in (row.get("tags") or {}).items()}
        return name in tags and value in (None, tags[name])

    return fits
