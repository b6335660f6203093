"""The Retail Prices API: no sign-in; values in a filter know case from 2023-01-01-preview on."""

import re
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.arm import odata
from emulator.arm.front_door import base_url, fabric_of
from emulator.market.price_rows import rows

PAGE = 1000
SIZE = re.compile(r"armSkuName eq '([^']+)'", re.IGNORECASE)  # other rows need not be made
OLDER = ("", "2021-10-01", "2021-10-01-preview")
FIELDS = {
    name.lower(): {"priceType": "type"}.get(name, name)
    for name in (
        "armRegionName",
        "armSkuName",
        "currencyCode",
        "location",
        "meterId",
        "meterName",
        "priceType",
        "productId",
        "productName",
        "serviceFamily",
        "serviceId",
        "serviceName",
        "skuId",
        "skuName",
    )
}


async def list_all(request: Request) -> Response:
    """List the meters that match $filter, a page at a time."""
    fabric, query = fabric_of(request), request.query_params
    try:
        named = SIZE.search(query.get("$filter", ""))
        meters = rows(fabric, named[1] if named else "")
        matches = _find(query, list(meters))
        top, skip = _number(query, "$top", None), _number(query, "$skip", 0) or 0
    except odata.BadFilter:
        error = {"Code": "BadRequest", "Message": "Invalid OData parameters supplied"}
        return JSONResponse({"Error": error}, status_code=400)
    end = skip + PAGE if top is None else skip + min(PAGE, top)
    remaining = None if top is None else top - (end - skip)
    link = None
    if end < len(matches) and remaining != 0:
        parameters = (
            dict(query) | {"$skip": str(end)} | ({"$top": str(remaining)} if remaining else {})
        )
        link = f"{base_url(request)}{request.url.path}?{urlencode(parameters, safe='$')}"
    return JSONResponse(
        {
            "BillingCurrency": "USD",
            "CustomerEntityId": "Default",
            "CustomerEntityType": "Retail",
            "Items": matches[skip:end],
            "NextPageLink": link,
            "Count": len(matches[skip:end]),
        }
    )


def _find(query: Any, meters: list[dict[str, Any]]) -> list[dict[str, Any]]:  # noqa: ANN401 - Starlette's
    if str(query.get("currencyCode") or "USD").strip("'\"").upper() != "USD":
        raise odata.BadFilter  # this list is in US dollars only
    if (of := query.get("meterRegion")) is not None:
        if of.strip("'\"").lower() != "primary":
            raise odata.BadFilter
        meters = [row for row in meters if row.get("isPrimaryMeterRegion") is not False]
    text = query.get("$filter", "")
    if not text.strip():
        return meters
    fold = query.get("api-version", "") in OLDER
    test = odata.parse(text, FIELDS, fold=fold)
    return [row for row in meters if test(row)]


def _number(query: Any, name: str, default: int | None) -> int | None:  # noqa: ANN401 - Starlette's
    text = query.get(name)
    if text is None:
        return default
    if not text.isdecimal() or len(text) > 9:
        raise odata.BadFilter
    return int(text)
