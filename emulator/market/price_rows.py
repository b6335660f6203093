"""The rows of the price list: every meter of every size, and of Blob Storage, in every region."""

import calendar
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from emulator.core.catalog import SizeOffer, catalog
from emulator.core.market_rows import PlantedPrice
from emulator.fabric import Fabric
from emulator.market import planted_prices

Row = dict[str, Any]
SINCE = "2026-01-01T00:00:00Z"  # of the storage meters
# Blob Storage (LRS): Microsoft's sample prices, the same in every region. SKU -> meter, unit, US
# dollars. The names are Azure's: some tell the redundancy, some do not.
STORAGE: dict[str, tuple[tuple[str, str, str], ...]] = {
    "Hot LRS": (
        ("Hot LRS Data Stored", "1 GB/Month", "0.0208"),
        ("Hot LRS Write Operations", "10K", "0.055"),
        ("Hot Read Operations", "10K", "0.0044"),
    ),
    "Cool LRS": (
        ("Cool LRS Data Stored", "1 GB/Month", "0.0115"),
        ("Cool LRS Write Operations", "10K", "0.10"),
        ("Cool Read Operations", "10K", "0.01"),
        ("Cool Data Retrieval", "1 GB", "0.01"),
    ),
    "Cold LRS": (
        ("Cold LRS Data Stored", "1 GB/Month", "0.0045"),
        ("Cold LRS Write Operations", "10K", "0.18"),
        ("Cold LRS Read Operations", "10K", "0.10"),
        ("Cold Data Retrieval", "1 GB", "0.03"),
    ),
    "Archive LRS": (
        ("Archive LRS Data Stored", "1 GB/Month", "0.002"),
        ("Archive LRS Write Operations", "10K", "0.11"),
        ("Archive Read Operations", "10K", "5.50"),
        ("Archive Data Retrieval", "1 GB", "0.022"),
        ("Archive Priority Read Operations", "10K", "50"),
        ("Archive Priority Data Retrieval", "1 GB", "0.10"),
    ),
}


def rows(fabric: Fabric, size: str = "") -> Iterator[Row]:
    """Iterate over all of it, or the machines of one size, in the order of the catalog."""
    now = fabric.now()
    at = datetime.fromtimestamp(now, UTC)
    for offer in catalog().offers:
        if size.lower() not in ("", offer.size.name.lower()):
            continue
        spot = fabric.spot_capacity.spot_price(offer.location, offer.size.name, now) or offer.spot
        planted = list(planted_prices.of(fabric, offer.size.name, offer.location))
        alone = {offer.size.short + p.bought for p in planted if p.alone}
        for row, price in _meters(offer, spot, at):
            if row["type"] != "Consumption" or row["skuName"] not in alone:
                yield row | _priced(price)
        yield from (_planted(offer, planted_price, at) for planted_price in planted)
    for region in catalog().regions.values():
        for sku, meters in STORAGE.items():
            for name, unit, amount in meters:
                yield _storage_meter(region.name, region.meter, sku, name, unit) | _priced(amount)


def _priced(price: Decimal | str) -> Row:
    amount = float(Decimal(price).quantize(Decimal("0.000001")))
    return {"currencyCode": "USD", "retailPrice": amount, "unitPrice": amount}


def _planted(offer: SizeOffer, planted: PlantedPrice, now: datetime) -> Row:
    prices = {"": offer.on_demand, " Spot": offer.spot, " Low Priority": offer.low_priority}
    own = _meter(offer, planted.bought, _month(now))
    return planted_prices.added(planted, own | _priced(prices[planted.bought]))


def _month(now: datetime) -> datetime:
    return now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def _meters(offer: SizeOffer, spot: Decimal, now: datetime) -> Iterator[tuple[Row, Decimal]]:
    """Iterate over Linux, bought in three ways, and what is paid years ahead."""
    month = _month(now)
    last = calendar.monthrange(month.year, month.month)[1]
    end = {"effectiveEndDate": _time(month.replace(day=last, hour=23, minute=59, second=59))}
    yield _meter(offer, "", month), offer.on_demand
    yield _meter(offer, " Spot", month) | end, spot
    yield _meter(offer, " Low Priority", month), offer.low_priority
    for term, price in offer.reservations.items():
        row = _meter(offer, "", month)
        yield row | {"type": "Reservation", "reservationTerm": term}, price


def _meter(offer: SizeOffer, kind: str, since: datetime) -> Row:
    name, product = offer.size.short + kind, offer.size.product
    row = _row(offer.location, offer.location_name, product, name, name)
    return row | {
        "effectiveStartDate": _time(since),
        "serviceName": "Virtual Machines",
        "serviceId": "DZH313Z7MMC8",
        "serviceFamily": "Compute",
        "unitOfMeasure": "1 Hour",
        "armSkuName": offer.size.name,
    }


def _storage_meter(region: str, location: str, sku: str, name: str, unit: str) -> Row:
    return _row(region, location, "General Block Blob v2", sku, name) | {
        "effectiveStartDate": SINCE,
        "serviceName": "Storage",
        "serviceId": "DZH317F1HKN0",
        "serviceFamily": "Storage",
        "unitOfMeasure": unit,
        "armSkuName": "",
    }


def _row(region: str, location: str, product: str, sku: str, name: str) -> Row:
    """Return what every meter has; its ids are made up, but always the same."""
    product_id = "DZH318Z0" + uuid.uuid5(uuid.NAMESPACE_URL, product).hex[:4].upper()
    sku_id = uuid.uuid5(uuid.NAMESPACE_URL, product + sku).hex[:4].upper()
    meter = f"{region}/{product}/{name}"
    return {
        "currencyCode": "",
        "tierMinimumUnits": 0.0,
        "retailPrice": 0.0,
        "unitPrice": 0.0,
        "armRegionName": region,
        "location": location,
        "meterId": str(uuid.uuid5(uuid.NAMESPACE_URL, meter)),
        "meterName": name,
        "productId": product_id,
        "skuId": f"{product_id}/{sku_id}",
        "productName": product,
        "skuName": sku,
        "type": "Consumption",
        "isPrimaryMeterRegion": True,
    }


def _time(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
