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
PAGES_AT_MOST = 20
_DEAREST = 1_000_000  # US dollars per machine hour; traces hold no more
_BANDS = "microsoft.compute/skuspotevictionrate/location"
_PRICES = "microsoft.compute/skuspotpricehistory/ostype/location"

Row = Mapping[str, Any]


class AzureMarket:
    """The Spot market as one subscription sees it. Takes over ``arm`` and closes it."""

    def __init__(self, arm: Arm, subscription_id: str, page: int = 1000) -> None:
        self._arm = arm
        self._subscription = subscription_id
        self._page = page  # rows per answer; Azure's maximum is 1,000

    async def bands(self, places: Collection[SpotPool]) -> dict[SpotPool, EvictionBand]:
        """Return the eviction band of each place; skip bands that we do not know."""
        rows = await self._rows(_BANDS, places, "band = tostring(properties.evictionRate)")
        known = {band.value for band in EvictionBand}
        told = {place: row["band"] for place, row in _placed(rows, places)}
        return {place: EvictionBand(band) for place, band in told.items() if band in known}

    async def price_history(self, places: Collection[SpotPool]) -> dict[SpotPool, list[PricePoint]]:
        """Return Spot prices of Linux machines; Azure keeps 90 days."""
        linux = "| where properties.osType =~ 'linux'"
        rows = await self._rows(_PRICES, places, "prices = properties.spotPrices", linux)
        found: defaultdict[SpotPool, set[PricePoint]] = defaultdict(set)
        for place, row in _placed(rows, places):
            found[place].update(_points(row))
        return {place: sorted(points) for place, points in found.items()}

    async def scores(
        self, places: Collection[SpotPool], machines: int
    ) -> dict[SpotPool, PlacementScore]:
        """Return placement scores, 5 sizes in 8 regions per request; leave out unscored places."""
        found: dict[SpotPool, PlacementScore] = {}
        for sizes, regions in _blocks(places):
            body = {
                "desiredLocations": regions,
                "desiredSizes": [{"sku": size} for size in sizes],
                "desiredCount": machines,
                "availabilityZones": False,
            }
            where = f"/subscriptions/{self._subscription}{COMPUTE}/locations/{regions[0]}{SCORES}"
            answer = await self._arm.post(where, SCORES_VERSION, body)
            rows = answer.get("placementScores")
            if not isinstance(rows, list):
                raise MarketUnavailable("The placement scores were answered without any.")
            named = [{**row, "location": row.get("region"), "size": row.get("sku")} for row in rows]
            for place, row in _placed(named, places):
                if row.get("score") in _SCORES:
                    found[place] = PlacementScore(row["score"])
        return found

    async def close(self) -> None:
        """Close the connections."""
        await self._arm.close()

    async def _rows(
        self, table: str, places: Collection[SpotPool], wanted: str, more: str = ""
    ) -> list[Row]:
        """Return all rows of a table for the sizes and regions of ``places``."""
        if not places:
            return []
        regions, sizes = (_quoted(names) for names in zip(*places, strict=True))
        query = (
            f"SpotResources | where type =~ '{table}' | where sku.name in~ ({sizes}) and location "
            f"in~ ({regions}) {more} | project size = tostring(sku.name), location, {wanted}"
        )
        found: list[Row] = []
        options: dict[str, Any] = {"resultFormat": "objectArray", "$top": self._page}
        for _ in range(PAGES_AT_MOST):
            body = {"subscriptions": [self._subscription], "query": query, "options": options}
            page = await self._arm.post(GRAPH, GRAPH_VERSION, body)
            rows = page.get("data")
            if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
                raise MarketUnavailable("Resource Graph answered without rows.")
            found += rows
            if not (token := page.get("$skipToken")):
                return found
            options = options | {"$skipToken": token}
        raise MarketUnavailable(f"Resource Graph's answer does not end, asked for {query}.")


def _blocks(places: Collection[SpotPool]) -> Iterator[tuple[list[str], list[str]]]:
    """Yield sizes and regions for as few requests as possible."""
    sizes = sorted({place.vm_size for place in places})
    for first in range(0, len(sizes), _SIZES):
        some = sizes[first : first + _SIZES]
        regions = sorted({place.region for place in places if place.vm_size in some})
        for at in range(0, len(regions), _REGIONS):
            yield some, regions[at : at + _REGIONS]


def _quoted(names: Collection[str]) -> str:
    """Return names as a list in the query language; drop names with a quote: never Azure's."""
    return ", ".join(f"'{name}'" for name in sorted(set(names)) if "'" not in name)


def _placed(rows: Collection[Row], places: Collection[SpotPool]) -> Iterator[tuple[SpotPool, Row]]:
    """Yield rows with their requested place; Azure writes names in lower case."""
    asked = {(p.region.lower(), p.vm_size.lower()): p for p in places}
    for row in rows:
        key = (str(row.get("location")).lower(), str(row.get("size")).lower())
        if key in asked:
            yield asked[key], row


def _listed(row: Row) -> list[Any]:
    prices = row.get("prices")
    return prices if isinstance(prices, list) else []


def _points(row: Row) -> Iterator[PricePoint]:
    """Yield the valid prices of a row; log and skip malformed ones."""
    for told in _listed(row):
        if point := _point(told):
            yield point
        else:
            facts = {"size": row.get("size"), "region": row.get("location")}
            log.warning("market.not_a_price", extra=facts | {"cause": f"{told!r:.200}"})


def _point(told: Any) -> PricePoint | None:  # noqa: ANN401 - as it came
    try:
        at = datetime.fromisoformat(str(told["effectiveDate"]))
        price = Decimal(str(told["priceUSD"]))
    except (KeyError, TypeError, ValueError, InvalidOperation):
        return None
    if not (price.is_finite() and 0 < price < _DEAREST):
        return None
    return PricePoint(at if at.tzinfo else at.replace(tzinfo=UTC), price)
