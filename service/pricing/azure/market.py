"""Read Azure's Spot market from Resource Graph's table SpotResources and placement scores."""

import logging
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from service.domain.spot.capacity_traces import SpotPool
from service.domain.spot.market import EvictionBand, PlacementScore, PricePoint
from service.pricing.azure.arm import Arm
from service.pricing.market import MarketUnavailable

log = logging.getLogger(__name__)
GRAPH = "/providers/Microsoft.ResourceGraph/resources"
GRAPH_VERSION = "2021-03-01"
COMPUTE = "/providers/Microsoft.Compute"
SCORES = "/placementScores/spot/generate"
SCORES_VERSION = "2025-06-05"
_SIZES, _REGIONS = 5, 8  # per request
_SCORES = {score.value for score in PlacementScore}
MAX_PAGES = 20
_MAX_PRICE = 1_000_000  # US dollars per machine hour; traces hold no more
_BANDS = "microsoft.compute/skuspotevictionrate/location"
_PRICES = "microsoft.compute/skuspotpricehistory/ostype/location"

Row = Mapping[str, Any]


class AzureMarket:
    """The Spot market as one subscription sees it. Takes over ``arm`` and closes it."""

    def __init__(self, arm: Arm, subscription_id: str, page: int = 1000) -> None:
        self._arm = arm
        self._subscription = subscription_id
        self._page = page  # rows per answer; Azure's maximum is 1,000

    async def bands(self, pools: Collection[SpotPool]) -> dict[SpotPool, EvictionBand]:
        """Return the eviction band of each pool; skip bands that we do not know."""
        rows = await self._rows(_BANDS, pools, "band = tostring(properties.evictionRate)")
        known_bands = {band.value for band in EvictionBand}
        band_by_pool = {pool: row["band"] for pool, row in _match_pools(rows, pools)}
        return {
            pool: EvictionBand(band) for pool, band in band_by_pool.items() if band in known_bands
        }

    async def price_history(self, pools: Collection[SpotPool]) -> dict[SpotPool, list[PricePoint]]:
        """Return Spot prices of Linux machines; Azure keeps 90 days."""
        linux = "| where properties.osType =~ 'linux'"
        rows = await self._rows(_PRICES, pools, "prices = properties.spotPrices", linux)
        points_by_pool: defaultdict[SpotPool, set[PricePoint]] = defaultdict(set)
        for pool, row in _match_pools(rows, pools):
            points_by_pool[pool].update(_points(row))
        return {pool: sorted(points) for pool, points in points_by_pool.items()}

    async def scores(
        self, pools: Collection[SpotPool], machines: int
    ) -> dict[SpotPool, PlacementScore]:
        """Return placement scores, 5 sizes in 8 regions per request; leave out unscored pools."""
        score_by_pool: dict[SpotPool, PlacementScore] = {}
        for sizes, regions in _blocks(pools):
            body = {
                "desiredLocations": regions,
                "desiredSizes": [{"sku": size} for size in sizes],
                "desiredCount": machines,
                "availabilityZones": False,
            }
            path = f"/subscriptions/{self._subscription}{COMPUTE}/locations/{regions[0]}{SCORES}"
            answer = await self._arm.post(path, SCORES_VERSION, body)
            rows = answer.get("placementScores")
            if not isinstance(rows, list):
                raise MarketUnavailable("The placement scores were answered without any.")
            score_rows = [
                {**row, "location": row.get("region"), "size": row.get("sku")} for row in rows
            ]
            for pool, row in _match_pools(score_rows, pools):
                if row.get("score") in _SCORES:
                    score_by_pool[pool] = PlacementScore(row["score"])
        return score_by_pool

    async def close(self) -> None:
        """Close the connections."""
        await self._arm.close()

    async def _rows(
        self, table: str, pools: Collection[SpotPool], columns: str, condition: str = ""
    ) -> list[Row]:
        """Return all rows of a table for the sizes and regions of ``pools``."""
        if not pools:
            return []
        regions, sizes = (_quoted(names) for names in zip(*pools, strict=True))
        query = (
            f"SpotResources | where type =~ '{table}' | where sku.name in~ ({sizes}) and location "
            f"in~ ({regions}) {condition} | project size = tostring(sku.name), location, {columns}"
        )
        all_rows: list[Row] = []
        options: dict[str, Any] = {"resultFormat": "objectArray", "$top": self._page}
        for _ in range(MAX_PAGES):
            body = {"subscriptions": [self._subscription], "query": query, "options": options}
            page = await self._arm.post(GRAPH, GRAPH_VERSION, body)
            rows = page.get("data")
            if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
                raise MarketUnavailable("Resource Graph answered without rows.")
            all_rows += rows
            if not (token := page.get("$skipToken")):
                return all_rows
            options = options | {"$skipToken": token}
        raise MarketUnavailable(f"Resource Graph's answer does not end, asked for {query}.")


def _blocks(pools: Collection[SpotPool]) -> Iterator[tuple[list[str], list[str]]]:
    """Yield sizes and regions for as few requests as possible."""
    sizes = sorted({pool.vm_size for pool in pools})
    for first in range(0, len(sizes), _SIZES):
        chunk = sizes[first : first + _SIZES]
        regions = sorted({pool.region for pool in pools if pool.vm_size in chunk})
        for at in range(0, len(regions), _REGIONS):
            yield chunk, regions[at : at + _REGIONS]


def _quoted(names: Collection[str]) -> str:
    """Return names as a list in the query language; drop names with a quote: never Azure's."""
    return ", ".join(f"'{name}'" for name in sorted(set(names)) if "'" not in name)


def _match_pools(
    rows: Collection[Row], pools: Collection[SpotPool]
) -> Iterator[tuple[SpotPool, Row]]:
    """Yield rows with their requested pool; Azure writes names in lower case."""
    requested = {(p.region.lower(), p.vm_size.lower()): p for p in pools}
    for row in rows:
        key = (str(row.get("location")).lower(), str(row.get("size")).lower())
        if key in requested:
            yield requested[key], row


def _price_list(row: Row) -> list[Any]:
    prices = row.get("prices")
    return prices if isinstance(prices, list) else []


def _points(row: Row) -> Iterator[PricePoint]:
    """Yield the valid prices of a row; log and skip malformed ones."""
    for entry in _price_list(row):
        if point := _point(entry):
            yield point
        else:
            facts = {"size": row.get("size"), "region": row.get("location")}
            log.warning("market.not_a_price", extra=facts | {"cause": f"{entry!r:.200}"})


def _point(entry: Any) -> PricePoint | None:  # noqa: ANN401 - as it came
    try:
        at = datetime.fromisoformat(str(entry["effectiveDate"]))
        price = Decimal(str(entry["priceUSD"]))
    except (KeyError, TypeError, ValueError, InvalidOperation):
        return None
    if not (price.is_finite() and 0 < price < _MAX_PRICE):
        return None
    return PricePoint(at if at.tzinfo else at.replace(tzinfo=UTC), price)
