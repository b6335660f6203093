"""The rows of the price list: every meter of every size, in every region where it is sold."""

import calendar
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from emulator.core.catalog import SizeOffer, catalog
from emulator.core.market_rows import PlantedPrice
from emulator.fabric import Fabric
from emulator.market import planted_prices, storage_rows


def rows(fabric: Fabric, size: str = "") -> Iterator[dict[str, Any]]:
    """All of it, or the machines of one size, in the order of the catalog."""
    now = fabric.now()
    for offer in catalog().offers:
        if size.lower() not in ("", offer.size.name.lower()):
            continue
        spot = fabric.weather.spot_price(offer.location, offer.size.name, now) or offer.spot
        for row, price in _meters(offer, spot, datetime.fromtimestamp(now, UTC)):
            if not _is_replaced(fabric, offer, row):
                yield row | _priced(price)
        for planted in planted_prices.of(fabric, offer.size.name, offer.location):
            yield _planted(offer, planted, datetime.fromtimestamp(now, UTC))
    for row, price in storage_rows.meters():
        yield row | _priced(price)


def _priced(price: Decimal) -> dict[str, Any]:
    amount = float(price.quantize(Decimal("0.000001")))
    return {"currencyCode": "USD", "retailPrice": amount, "unitPrice": amount}


def _is_replaced(fabric: Fabric, offer: SizeOffer, row: dict[str, Any]) -> bool:
    """Whether a planted row stands alone for this one."""
    planted = planted_prices.of(fabric, offer.size.name, offer.location)
    return row["type"] == "Consumption" and any(
        p.alone and row["skuName"] == offer.size.short + p.bought for p in planted
    )


def _planted(offer: SizeOffer, planted: PlantedPrice, now: datetime) -> dict[str, Any]:
    usual = {"": offer.on_demand, " Spot": offer.spot, " Low Priority": offer.low_priority}
    own = _meter(offer, planted.bought, _month(now))
    return planted_prices.added(planted, own | _priced(usual[planted.bought]))


def _month(now: datetime) -> datetime:
    return now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def _meters(
    offer: SizeOffer, spot: Decimal, now: datetime
) -> Iterator[tuple[dict[str, Any], Decimal]]:
    """Linux, bought in three ways, and what is paid years ahead."""
    month = _month(now)
    last = calendar.monthrange(month.year, month.month)[1]
    end = {"effectiveEndDate": _time(month.replace(day=last, hour=23, minute=59, second=59))}
    yield _meter(offer, "", month), offer.on_demand
    yield _meter(offer, " Spot", month) | end, spot
    yield _meter(offer, " Low Priority", month), offer.low_priority
    for term, price in offer.reservations.items():
        row = _meter(offer, "", month)
        yield row | {"type": "Reservation", "reservationTerm": term}, price


def _meter(offer: SizeOffer, kind: str, since: datetime) -> dict[str, Any]:
    name, product = offer.size.short + kind, offer.size.product
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
