"""The rows of the price list: every meter of every size, in every region where it is sold."""

import calendar
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from emulator.catalog import Offer, catalog
from emulator.market import storage_rows
from emulator.weather import Weather

WINDOWS_PER_CORE = Decimal("0.046")  # licence, US dollars per hour
# What a dollar is worth, made up: nobody can be asked here.
RATES = {
    "USD": Decimal(1),
    "EUR": Decimal("0.88"),
    "GBP": Decimal("0.77"),
    "SEK": Decimal("9.8"),
    "INR": Decimal(88),
}


def rows(weather: Weather, now: float, currency: str) -> Iterator[dict[str, Any]]:
    """All of it, in the order of the catalog."""
    rate = RATES[currency]
    for offer in catalog().offers:
        spot = weather.spot_price(offer.location, offer.size.name, now) or offer.spot
        for row, price in _meters(offer, spot, datetime.fromtimestamp(now, UTC)):
            amount = float((price * rate).quantize(Decimal("0.000001")))
            yield row | {"currencyCode": currency, "retailPrice": amount, "unitPrice": amount}
    for row, price in storage_rows.meters():
        amount = float((price * rate).quantize(Decimal("0.000001")))
        yield row | {"currencyCode": currency, "retailPrice": amount, "unitPrice": amount}


def _meters(offer: Offer, spot: Decimal, now: datetime) -> Iterator[tuple[dict[str, Any], Decimal]]:
    """Linux and Windows, each bought three ways; then what is paid years ahead."""
    month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    last = calendar.monthrange(month.year, month.month)[1]
    end = {"effectiveEndDate": _time(month.replace(day=last, hour=23, minute=59, second=59))}
    for system, licence in (("", Decimal(0)), (" Windows", WINDOWS_PER_CORE * offer.size.vcpus)):
        product = offer.size.product + system
        yield _meter(offer, product, "", month), offer.on_demand + licence
        yield _meter(offer, product, " Spot", month) | end, spot + licence
        yield _meter(offer, product, " Low Priority", month), offer.low_priority + licence
    for term, price in offer.reservations.items():
        row = _meter(offer, offer.size.product, "", month)
        yield row | {"type": "Reservation", "reservationTerm": term}, price


def _meter(offer: Offer, product: str, kind: str, since: datetime) -> dict[str, Any]:
    name = offer.size.short + kind
    return {
        "currencyCode": "",
        "tierMinimumUnits": 0.0,
        "retailPrice": 0.0,
        "unitPrice": 0.0,
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
