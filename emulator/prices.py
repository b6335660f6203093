"""The Retail Prices API: no sign-in, OData filters of `eq` and `and`."""

import calendar
import re
import uuid
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.catalog import Offer, catalog
from emulator.errors import ArmError
from emulator.front_door import base_url, fabric_of

PAGE = 1000
CLAUSE = re.compile(r"\s*(\w+)\s+eq\s+'([^']*)'\s*")
FIELDS = {
    "armRegionName": "armRegionName",
    "armSkuName": "armSkuName",
    "currencyCode": "currencyCode",
    "location": "location",
    "meterId": "meterId",
    "meterName": "meterName",
    "priceType": "type",
    "productName": "productName",
    "serviceFamily": "serviceFamily",
    "serviceName": "serviceName",
    "skuName": "skuName",
}
WINDOWS_PER_CORE = Decimal("0.046")  # licence, US dollars per hour


async def list_all(request: Request) -> Response:
    """The meters that fit $filter, a page at a time."""
    query = request.query_params
    wanted = parse_filter(query.get("$filter", ""))
    now = datetime.fromtimestamp(fabric_of(request).now(), UTC)
    rows = [m for offer in catalog().offers for m in meters(offer, now)]
    rows = [row for row in rows if all(row[FIELDS[f]] == v for f, v in wanted)]
    skip = int(query.get("$skip", "0"))
    more = urlencode(dict(query) | {"$skip": str(skip + PAGE)}, safe="$")
    return JSONResponse(
        {
            "BillingCurrency": "USD",
            "CustomerEntityId": "Default",
            "CustomerEntityType": "Retail",
            "Items": rows[skip : skip + PAGE],
            "NextPageLink": f"{base_url(request)}{request.url.path}?{more}"
            if skip + PAGE < len(rows)
            else None,
            "Count": len(rows[skip : skip + PAGE]),
        }
    )


def parse_filter(text: str) -> list[tuple[str, str]]:
    """Field and value of every clause; ArmError 400 for what the emulator cannot read."""
    if not text.strip():
        return []
    clauses = []
    for part in re.split(r"\band\b(?=(?:[^']*'[^']*')*[^']*$)", text):
        found = CLAUSE.fullmatch(part)
        if not found or found[1] not in FIELDS:
            message = f"Invalid OData $filter near '{part.strip()}': only FIELD eq 'VALUE' is read."
            raise ArmError(400, "BadRequest", message)
        clauses.append((found[1], found[2]))
    return clauses


def meters(offer: Offer, now: datetime) -> list[dict[str, Any]]:
    """Every meter of one size in one region: Linux and Windows, each bought three ways."""
    month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    rows = []
    for system, licence in (("", Decimal(0)), (" Windows", WINDOWS_PER_CORE * offer.size.vcpus)):
        product = offer.size.product + system
        rows.append(_meter(offer, product, "", offer.on_demand + licence, month))
        spot = _meter(offer, product, " Spot", offer.spot + licence, month)
        last = calendar.monthrange(month.year, month.month)[1]
        rows.append(spot | {"effectiveEndDate": _time(month.replace(day=last, hour=23, minute=59))})
        rows.append(_meter(offer, product, " Low Priority", offer.low_priority + licence, month))
    return rows


def _meter(
    offer: Offer, product: str, kind: str, price: Decimal, since: datetime
) -> dict[str, Any]:
    name = offer.size.short + kind
    return {
        "currencyCode": "USD",
        "tierMinimumUnits": 0.0,
        "retailPrice": float(price),
        "unitPrice": float(price),
        "armRegionName": offer.location,
        "location": offer.location_name,
        "effectiveStartDate": _time(since),
        "meterId": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{offer.location}/{product}/{name}")),
        "meterName": name,
        "productId": "DZH318Z0" + uuid.uuid5(uuid.NAMESPACE_URL, product).hex[:4].upper(),
        "skuId": "DZH318Z0/" + uuid.uuid5(uuid.NAMESPACE_URL, product + name).hex[:4].upper(),
        "productName": product,
        "skuName": name,
        "serviceName": "Virtual Machines",
        "serviceId": "DZH313Z7MMC8",
        "serviceFamily": "Compute",
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
        "isPrimaryMeterRegion": True,
        "armSkuName": offer.size.name,
    }


def _time(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
