"""Select hourly prices of Linux machines from rows of Azure's price list.

The rows of one size in one region are of many products. The product of Windows machines ends with
"Windows" or "Win"; Cloud Services and dedicated hosts have the size's own name. Spot and Low
Priority have meters of their own, known by the end of the meter's name.
"""

import re
from collections.abc import Iterable
from datetime import datetime

from service.domain.money.price_check import ListedPrice
from service.domain.spot.capacity_traces import SpotPool
from service.domain.states import CapacityType
from service.pricing import price_rows
from service.pricing.price_rows import Row, has, text

_MACHINES = "virtual machines"
_OTHER_PRODUCTS = re.compile(
    r"\bwin(dows)?\b|\bcloud ?services?\b|\bdedicated\b|\blicen[cs]es?\b|\bexpired\b"
    r"|\b(rhel|red hat|suse|sles|sql|oracle|ubuntu pro)\b"
)
_LOW_PRIORITY = "low priority"


def parse_prices(
    rows: Iterable[Row], pool: SpotPool, now: datetime
) -> dict[CapacityType, ListedPrice]:
    """Return the listed prices of a pool at ``now``, by capacity type."""
    pool_rows = [row for row in rows if _is_linux_hour(row, pool)]
    return {
        capacity: price_rows.parse_price(
            (row for row in pool_rows if _capacity(row) is capacity), now
        )
        for capacity in CapacityType
    }


def _is_linux_hour(row: Row, pool: SpotPool) -> bool:
    matches_pool = has(row, "armRegionName", pool.region) and has(row, "armSkuName", pool.vm_size)
    hourly = text(row, "unitOfMeasure") == "1 hour" and text(row, "type") == "consumption"
    paid = price_rows.is_consumption(row) and price_rows.is_first_tier(row)
    return (
        matches_pool and hourly and paid and has(row, "serviceName", _MACHINES) and _is_linux(row)
    )


def _is_linux(row: Row) -> bool:
    product = text(row, "productName")
    names = f"{product} | {text(row, 'skuName')} | {text(row, 'meterName')}"
    return _MACHINES in product and not _OTHER_PRODUCTS.search(names)


def _capacity(row: Row) -> CapacityType | None:
    """Return how the row's machine is bought; None: as Low Priority, or its names do not say."""
    names = [name for name in (text(row, "skuName"), text(row, "meterName")) if name]
    if not names or any(name.endswith(_LOW_PRIORITY) for name in names):
        return None
    spot = any(name.split()[-1] == "spot" for name in names)
    return CapacityType.SPOT if spot else CapacityType.ON_DEMAND
