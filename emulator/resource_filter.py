"""$filter and $top of the lists of resources and resource groups."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from starlette.requests import Request

from emulator import odata
from emulator.errors import ArmError, invalid

FIELDS = {
    "resourcetype": "type",
    "name": "name",
    "location": "location",
    "resourcegroup": "group",
    "identity/principalid": "principal",
}
TAG = re.compile(
    r"\s*tagName\s+eq\s+'(?P<name>[^']*)'(?:\s+and\s+tagValue\s+eq\s+'(?P<value>[^']*)')?\s*"
    r"|\s*startswith\(\s*tagName\s*,\s*'(?P<prefix>[^']*)'\s*\)\s*",
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
    """A filter is by tag, or by anything else: Azure does not mix them."""
    if found := TAG.fullmatch(text):
        return _test_of_tags(found)
    try:
        wanted = odata.parse(text, FIELDS, ("substringof",), fold=True)
    except odata.BadFilter:
        raise _unreadable(text) from None
    return lambda row: wanted(_members(row))


def _test_of_tags(found: re.Match[str]) -> Callable[[Row], bool]:
    name, value, prefix = (text and text.lower() for text in found.group("name", "value", "prefix"))

    def fits(row: Row) -> bool:
        tags = {str(k).lower(): str(v).lower() for k, v in (row.get("tags") or {}).items()}
        if prefix is not None:
            return any(tag.startswith(prefix) for tag in tags)
        return name in tags and value in (None, tags[name])

    return fits


def _members(row: Row) -> Row:
    """What can be compared of a resource."""
    identity = row.get("identity")
    principal = identity.get("principalId") if isinstance(identity, Mapping) else None
    group = str(row.get("id", "")).partition("/resourceGroups/")[2].partition("/")[0]
    return row | {"group": group, "principal": principal}


def _unreadable(text: str) -> ArmError:
    return invalid(
        f"Invalid $filter '{text}' specified in the query string.", "InvalidFilterInQueryString"
    )
