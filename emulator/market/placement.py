"""Spot Placement Scores: how likely an allocation of so many machines would succeed now.

How Azure scores is not told. Here: High where twice as many would fit, Medium where they just
fit, Low where they do not.
"""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.arm.front_door import fabric_of, read_json
from emulator.compute.usages import Region, limit, used_cores
from emulator.core.catalog import SizeOffer, VmSize, catalog
from emulator.core.errors import ArmError, invalid
from emulator.fabric import Fabric
from emulator.market import restrictions
from emulator.weather import allocation

MOST_LOCATIONS = 8
MOST_SIZES = 5
MOST_MACHINES = 1000


async def generate(request: Request) -> Response:
    """Score every wanted size in every wanted region, or in each of its zones."""
    fabric, body = fabric_of(request), await read_json(request)
    subscription = request.path_params["subscription"]
    Region.of(subscription, request.path_params["location"])
    regions = [Region.of(subscription, place) for place in _locations(body)]
    sizes, count = _sizes(body), _count(body)
    zonal = body.get("availabilityZones", False)
    if not isinstance(zonal, bool):
        raise invalid("The value of parameter availabilityZones is invalid.")
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
    offer = catalog().offer(name, region.location)
    row = {
        "sku": name,
        "region": region.location,
        "score": _likelihood(fabric, offer, zone, count),
        "isQuotaAvailable": _quota_allows(fabric, region, catalog().size(name), count),
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
    """How many machines an allocation would find; None for any number."""
    place = f"{offer.location}/{offer.size.name}".lower()
    left = [n for n in [fabric.state.globals.capacity.get(place)] if n is not None]
    pool = fabric.weather.over(offer.location, zone, offer.size.name)
    if pool:
        left.append(allocation.room(fabric.state, fabric.weather, pool, fabric.now()))
    return min(left, default=None)


def _quota_allows(fabric: Fabric, region: Region, size: VmSize | None, count: int) -> bool:
    usage = used_cores(fabric, region, spot=True)
    more = count * (size.vcpus if size else 0)
    return usage + more <= limit(fabric, region, "lowPriorityCores")


def _zones(region: Region, size: str) -> tuple[str, ...]:
    offer = catalog().offer(size, region.location)
    return offer.zones if offer else catalog().regions[region.location].zones


def _locations(body: dict[str, Any]) -> list[str]:
    given = body.get("desiredLocations")
    if not isinstance(given, list) or not 0 < len(given) <= MOST_LOCATIONS:
        raise _unfit("desiredLocations", MOST_LOCATIONS)
    return [str(place) for place in given]


def _sizes(body: dict[str, Any]) -> list[str]:
    given = body.get("desiredSizes")
    if not isinstance(given, list) or not 0 < len(given) <= MOST_SIZES:
        raise _unfit("desiredSizes", MOST_SIZES)
    names = [str(row.get("sku") or "") if isinstance(row, dict) else "" for row in given]
    if "" in names:
        raise invalid("Required parameter 'desiredSizes.sku' is missing (null).")
    return names


def _count(body: dict[str, Any]) -> int:
    count = body.get("desiredCount")
    if not isinstance(count, int) or isinstance(count, bool) or not 0 < count <= MOST_MACHINES:
        raise invalid(f"The value of parameter desiredCount must be 1 to {MOST_MACHINES}.")
    return count


def _unfit(name: str, most: int) -> ArmError:
    return invalid(f"The parameter {name} must be a list of 1 to {most}.")
