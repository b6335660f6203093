"""Spot Placement Scores: how likely an allocation of a number of machines would succeed now.

How Azure scores is not published. Here: High where twice as many would fit, Medium where they just
fit, Low where they do not.
"""

from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.arm.front_door import fabric_of, read_json
from emulator.capacity import allocation
from emulator.compute.usages import Region, limit, used_cores
from emulator.core.catalog import SizeOffer, catalog
from emulator.core.errors import MISSING
from emulator.core.rules import Rule, check_rules
from emulator.fabric import Fabric
from emulator.market import restrictions

MAX_COUNTS = {"desiredLocations": 8, "desiredSizes": 5, "desiredCount": 1000}


def _is_no_list(body: dict[str, Any], name: str) -> bool:
    value = body.get(name)
    return not isinstance(value, list) or not 0 < len(value) <= MAX_COUNTS[name]


def _is_no_count(body: dict[str, Any]) -> bool:
    count = body.get("desiredCount")
    return type(count) is not int or not 0 < count <= MAX_COUNTS["desiredCount"]


RULES: tuple[Rule[dict[str, Any]], ...] = (
    *(Rule(partial(_is_no_list, name=name), f"The parameter {name} must be a list of 1 to {most}.")
      for name, most in MAX_COUNTS.items() if name != "desiredCount"),
    Rule(lambda b: not all(isinstance(row, dict) and row.get("sku") for row in b["desiredSizes"])
         and "desiredSizes.sku",
         MISSING),
    Rule(_is_no_count,
         f"The value of parameter desiredCount must be 1 to {MAX_COUNTS['desiredCount']}."),
    Rule(lambda b: not isinstance(b.get("availabilityZones", False), bool),
         "The value of parameter availabilityZones is invalid."),
)  # fmt: skip


async def generate(request: Request) -> Response:
    """Score every wanted size in every wanted region, or in each of its zones."""
    fabric, body = fabric_of(request), await read_json(request)
    subscription = request.path_params["subscription"]
    Region.of(subscription, request.path_params["location"])
    check_rules(RULES, body)
    regions = [Region.of(subscription, str(location)) for location in body["desiredLocations"]]
    sizes, count = [str(row["sku"]) for row in body["desiredSizes"]], body["desiredCount"]
    zonal = body.get("availabilityZones", False)
    scores = [
        _score(fabric, region, size, zone, count)
        for size in sizes
        for region in regions
        for zone in (_zones(region, size) if zonal else ("",))
    ]
    return JSONResponse(
        {
            "desiredLocations": [region.location for region in regions],
            "desiredSizes": [{"sku": size} for size in sizes],
            "desiredCount": count,
            "availabilityZones": zonal,
            "placementScores": scores,
        }
    )


def _score(fabric: Fabric, region: Region, name: str, zone: str, count: int) -> dict[str, Any]:
    offer, size = catalog().offer(name, region.location), catalog().size(name)
    usage = used_cores(fabric, region, spot=True) + count * (size.vcpus if size else 0)
    row = {
        "sku": name,
        "region": region.location,
        "score": _likelihood(fabric, offer, zone, count),
        "isQuotaAvailable": usage <= limit(fabric, region, "lowPriorityCores"),
    }
    return row | ({"availabilityZone": zone} if zone else {})


def _likelihood(fabric: Fabric, offer: SizeOffer | None, zone: str, count: int) -> str:
    if offer is None or (zone and zone not in offer.zones):
        return "DataNotFoundOrStale"
    zones = [zone] if zone else list(offer.zones)
    if restrictions.bars(fabric, offer.size.name, offer.location, zones if zone else []):
        return "RestrictedSkuNotAvailable"
    room = _room(fabric, offer, zone)
    if room is None or room >= 2 * count:
        return "High"
    return "Medium" if room >= count else "Low"


def _room(fabric: Fabric, offer: SizeOffer, zone: str) -> int | None:
    """Return how many machines an allocation would find; None for any number."""
    key = f"{offer.location}/{offer.size.name}".lower()
    limits = [n for n in [fabric.state.globals.capacity.get(key)] if n is not None]
    pool = fabric.spot_capacity.pool_at(offer.location, zone, offer.size.name)
    if pool:
        limits.append(allocation.room(fabric.state, fabric.spot_capacity, pool, fabric.now()))
    return min(limits, default=None)


def _zones(region: Region, size: str) -> tuple[str, ...]:
    offer = catalog().offer(size, region.location)
    return offer.zones if offer else catalog().regions[region.location].zones
