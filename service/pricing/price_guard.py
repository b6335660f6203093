"""Filter listed prices: use plausible ones, else the last good one, and warn operators."""

import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal

from service.domain.cloud.fleet import Price
from service.domain.money import price_check
from service.domain.money.price_check import ListedPrice, PriceBounds, PriceDoubt
from service.domain.spot.capacity_traces import SpotPool
from service.domain.states import CapacityType
from service.domain.storage.access_tiers import StorageAccount
from service.pricing import storage_prices
from service.pricing.price_memory import PriceMemory
from service.pricing.storage_prices import Meter

log = logging.getLogger(__name__)
_CAPACITY_TYPES = (CapacityType.ON_DEMAND, CapacityType.SPOT)


class PriceGuard:
    """Filter of one price list. Remembers the last good price of every meter."""

    def __init__(self, memory: PriceMemory, now: Callable[[], datetime]) -> None:
        self._memory = memory
        self._now = now
        self._last_prices: dict[str, Decimal] = {}
        self._last_warnings: dict[str, str] = {}  # meter -> the last warning

    async def machines(
        self, pool: SpotPool, listed_prices: Mapping[CapacityType, ListedPrice]
    ) -> dict[CapacityType, Price]:
        """Return the prices to use in a pool; no Spot price without an on-demand price."""
        meters = {capacity: f"{pool} {capacity}" for capacity in _CAPACITY_TYPES}
        doubts = await self._memory.find_doubts(meters.values())
        last = await self._find_last_prices(pool, meters, doubts)
        prices: dict[CapacityType, Price] = {}
        for capacity in _CAPACITY_TYPES:
            on_demand = prices.get(CapacityType.ON_DEMAND)
            if capacity is CapacityType.SPOT and on_demand is None:
                break
            bounds = price_check.machine_bounds(pool.vm_size, capacity)
            if on_demand and capacity not in last:
                bounds = price_check.spot_bounds(bounds, on_demand.hourly)
            meter, listed = meters[capacity], listed_prices[capacity]
            most = on_demand.hourly if on_demand else None
            hourly = await self._judge(
                meter, listed, last.get(capacity), doubts.get(meter), bounds, most
            )
            if hourly is not None:
                prices[capacity] = Price(hourly=hourly, on_demand_hourly=most or hourly)
        return prices

    async def storage(
        self, account: StorageAccount, listed_prices: Mapping[Meter, ListedPrice]
    ) -> dict[Meter, Decimal]:
        """Return the prices of an account's meters to use; the table holds for the others."""
        names = {meter: meter.name(account) for meter in listed_prices}
        doubts = await self._memory.find_doubts(names.values())
        prices = {}
        for meter, listed in listed_prices.items():
            doubt, bounds = doubts.get(names[meter]), storage_prices.bounds(meter)
            last = self._last_good(names[meter], doubt)
            price = await self._judge(names[meter], listed, last, doubt, bounds)
            if price is not None:
                prices[meter] = price
        return prices

    async def _judge(
        self,
        meter: str,
        listed: ListedPrice,
        last: Decimal | None,
        doubt: PriceDoubt | None,
        bounds: PriceBounds,
        most: Decimal | None = None,
    ) -> Decimal | None:
        """Return the price of a meter to use, at most ``most``; None if there is none.

        Stores the doubt and reports it to operators.
        """
        verdict = price_check.check_price(listed, last, doubt, bounds, self._now())
        if verdict.doubt:
            if verdict.doubt != doubt:
                await self._memory.save_doubt(meter, verdict.doubt)
        elif doubt and verdict.price is not None and self._can_remove_doubt(doubt, verdict.price):
            await self._memory.remove_doubt(meter)
        price, reason = verdict.price, verdict.reason
        if price is not None and most is not None and price > most:
            # Azure bills no more than on demand: our machines have the maxPrice -1.
            reason = reason or f"Spot costs ${price}, more than ${most} on demand"
            price = most
        if price is not None:
            self._last_prices[meter] = price
        self._report(meter, listed, price, reason)
        return price

    def _last_good(self, meter: str, doubt: PriceDoubt | None) -> Decimal | None:
        """Return the last good price: used by this process, or settled."""
        settled = doubt.price if doubt and self._now() >= doubt.settles_at else None
        return self._last_prices.get(meter, settled)

    async def _find_last_prices(
        self, pool: SpotPool, meters: Mapping[CapacityType, str], doubts: Mapping[str, PriceDoubt]
    ) -> dict[CapacityType, Decimal]:
        last_prices = {c: self._last_good(meter, doubts.get(meter)) for c, meter in meters.items()}
        known_prices = {
            capacity: price for capacity, price in last_prices.items() if price is not None
        }
        return (
            known_prices
            if len(known_prices) == len(meters)
            else await self._memory.last_good_prices(pool) | known_prices
        )

    def _can_remove_doubt(self, doubt: PriceDoubt, price: Decimal) -> bool:
        """Return whether a doubt can be forgotten.

        A settled doubt stays for other replicas as long as its price holds.
        """
        return self._now() < doubt.settles_at or price_check.is_jump(price, doubt.price)

    def _report(self, meter: str, listed: ListedPrice, used: Decimal | None, reason: str) -> None:
        """Log a doubt about a price when it begins, changes or ends."""
        if self._last_warnings.get(meter, "") == reason:
            return
        self._last_warnings[meter] = reason
        facts = {"meter": meter, "listed": _money(listed.price), "used": _money(used)}
        if reason:
            log.warning("prices.doubted", extra=facts | {"cause": reason})
        else:
            log.info("prices.believed", extra=facts)


def _money(price: Decimal | None) -> str:
    return "none" if price is None else f"${price}"
