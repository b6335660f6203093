"""Resource Graph's SpotResources, for the one form of query that Rekindle sends.

Azure reads the whole Kusto language; this emulator answers one form of it (QUERY) and refuses all
others as a query that cannot be read.
"""

import base64
import re
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.arm.front_door import fabric_of, read_json
from emulator.core.catalog import SizeOffer, catalog
from emulator.core.errors import invalid
from emulator.fabric import Fabric

MAX_ROWS = 1000  # rows in one answer
ADVICE = (
    "Query is invalid. Please refer to the documentation for the Azure Resource Graph service and "
    "fix the error before retrying."
)
FORM = (
    "SpotResources | where type =~ 'TYPE' | where sku.name in~ ('SIZE', ...) and location in~ "
    "('REGION', ...) [| where properties.osType =~ 'linux'] | project size = tostring(sku.name), "
    "location, NAME = PROPERTY"
)
_WORDS = r"\(((?:'[^']*'[, ]*)+)\)"
QUERY = re.compile(
    rf"SpotResources \| where type =~ '([^']+)' \| where sku\.name in~ {_WORDS} and location in~ "
    rf"{_WORDS}(?: \| where properties\.osType =~ 'linux')? \| project size = tostring\(sku\.name\)"
    r", location, (\w+) = (?:tostring\()?properties\.(\w+)\)?",
    re.IGNORECASE,
)
PRICES = "microsoft.compute/skuspotpricehistory/ostype/location"
RATES = "microsoft.compute/skuspotevictionrate/location"


async def resources(request: Request) -> Response:
    """Answer the query with rows as objects, at most 1,000 at once."""
    fabric, body = fabric_of(request), await read_json(request)
    match = QUERY.fullmatch(" ".join(str(body.get("query") or "").split()))
    if match is None:
        return _refused(fabric.now())
    options = body.get("options") or {}
    if not isinstance(options, dict):
        raise invalid("The value of parameter options is invalid.")
    rows = list(_rows(fabric, *match.groups()))
    skip = _skip(options)
    selected = rows[skip : skip + min(_top(options), MAX_ROWS)]
    end = skip + len(selected)
    answer: dict[str, Any] = {
        "totalRecords": len(rows),
        "count": len(selected),
        "resultTruncated": "false",
        "facets": [],
        "data": selected,
    }
    if end < len(rows):
        answer["$skipToken"] = base64.b64encode(str(end).encode()).decode()
    return JSONResponse(answer)


def _rows(
    fabric: Fabric, kind: str, sizes: str, regions: str, name: str, member: str
) -> Iterator[dict[str, Any]]:
    filters = [
        {w.lower() for w in re.findall(r"'([^']*)'", listing)} for listing in (sizes, regions)
    ]
    for offer in catalog().offers:
        size = offer.size.name.lower()
        if size in filters[0] and offer.location in filters[1]:
            properties = _properties(fabric, offer, kind.lower())
            if properties is not None:
                yield {"size": size, "location": offer.location, name: properties.get(member)}


def _properties(fabric: Fabric, offer: SizeOffer, kind: str) -> dict[str, Any] | None:
    now, location, size = fabric.now(), offer.location, offer.size.name
    if kind == RATES:
        return {"evictionRate": fabric.spot_capacity.eviction_band(location, size, now)}
    if kind != PRICES:
        return None
    history = fabric.spot_capacity.price_history(location, size, now)
    prices = [{"effectiveDate": _time(at), "priceUSD": float(price)} for at, price in history]
    return {"osType": "Linux", "spotPrices": prices}


def _top(options: dict[str, Any]) -> int:
    value = options.get("$top", MAX_ROWS)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise invalid("The value of parameter options.$top is invalid.")
    return value


def _skip(options: dict[str, Any]) -> int:
    token = options.get("$skipToken")
    try:
        return max(int(base64.b64decode(str(token), validate=True)), 0) if token else 0
    except ValueError:
        raise invalid(f"The $skipToken '{token}' was not issued here.") from None


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _refused(now: float) -> Response:
    """400 in the shape that Resource Graph has of its own."""
    when = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f0Z")
    error = {
        "code": "BadRequest",
        "message": "Please provide below info when asking for support: "
        f"timestamp = {when}, correlationId = {uuid.uuid4()}.",
        "details": [
            {"code": "InvalidQuery", "message": ADVICE},
            {"code": "ParserFailure", "message": f"This emulator answers one query: {FORM}."},
        ],
    }
    return JSONResponse({"error": error}, status_code=400)
