"""Meters of Blob Storage (LRS): Microsoft's sample prices, the same in every region."""

import uuid
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from emulator.core.catalog import Location, catalog

PRODUCT = "General Block Blob v2"
SINCE = "2026-01-01T00:00:00Z"
# SKU -> meter, unit, US dollars. The names are Azure's: some tell the redundancy, some do not.
METERS: dict[str, tuple[tuple[str, str, str], ...]] = {
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


def meters() -> Iterator[tuple[dict[str, Any], Decimal]]:
    """Every row, without currency and price, and its price."""
    for region in catalog().regions.values():
        for sku, rows in METERS.items():
            for name, unit, price in rows:
                yield _row(region, sku, name, unit), Decimal(price)


def _row(region: Location, sku: str, name: str, unit: str) -> dict[str, Any]:
    product_id = "DZH318Z0" + uuid.uuid5(uuid.NAMESPACE_URL, PRODUCT).hex[:4].upper()
    sku_id = uuid.uuid5(uuid.NAMESPACE_URL, PRODUCT + sku).hex[:4].upper()
    return {
        "currencyCode": "",
        "tierMinimumUnits": 0.0,
        "retailPrice": 0.0,
        "unitPrice": 0.0,
        "armRegionName": region.name,
        "location": region.meter,
        "effectiveStartDate": SINCE,
        "meterId": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{region.name}/{PRODUCT}/{sku}/{name}")),
        "meterName": name,
        "productId": product_id,
        "skuId": f"{product_id}/{sku_id}",
        "productName": PRODUCT,
        "skuName": sku,
        "serviceName": "Storage",
        "serviceId": "DZH317F1HKN0",
        "serviceFamily": "Storage",
        "unitOfMeasure": unit,
        "type": "Consumption",
        "isPrimaryMeterRegion": True,
        "armSkuName": "",
    }
