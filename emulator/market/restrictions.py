"""Sizes that the subscription may not have in a region; an admin sets them, the SKUs tell."""

from dataclasses import asdict

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.arm.front_door import fabric_of, read_order
from emulator.core.catalog import catalog
from emulator.core.errors import invalid, sku_not_available
from emulator.core.market_rows import Restriction
from emulator.core.state import ScaleSetRow
from emulator.fabric import Fabric

MEMBERS = ("vm_size", "region", "zones", "reason")
REASONS = ("NotAvailableForSubscription", "QuotaId")


async def restrict(request: Request) -> Response:
    """Keep a size out of a region or of its ``zones``; ``reason`` null lets it in again."""
    fabric, body = fabric_of(request), await read_order(request, *MEMBERS)
    size = catalog().size(str(body.get("vm_size", "")))
    region = str(body.get("region", "")).lower()
    if size is None or catalog().offer(size.name, region) is None:
        raise invalid("'vm_size' and 'region' must name a size and where it is sold.")
    reason, zones = body.get("reason", REASONS[0]), body.get("zones") or []
    if reason not in (*REASONS, None):
        raise invalid(f"'reason' must be one of {', '.join(REASONS)}, or null to lift it.")
    if not isinstance(zones, list) or not all(isinstance(zone, str) for zone in zones):
        raise invalid('\'zones\' must be a list like ["1", "2"].')
    restriction = Restriction(size.name, region, zones, reason or "")
    if reason is None:
        fabric.state.remove(restriction)
    else:
        fabric.state.put(restriction)
    fabric.changed()
    return _as_response(fabric)


async def list_all(request: Request) -> Response:
    """Every restriction there is."""
    return _as_response(fabric_of(request))


def find(fabric: Fabric, size: str, region: str) -> Restriction | None:
    """Return the restriction of a size in a region."""
    return fabric.state.restrictions.get(f"{size}/{region}".lower())


def bars(fabric: Fabric, size: str, region: str, zones: list[str]) -> bool:
    """Whether machines of this size cannot be had there, in one of these zones if any are given."""
    restriction = find(fabric, size, region)
    return restriction is not None and (
        not restriction.zones or bool(set(zones) & set(restriction.zones))
    )


def check(fabric: Fabric, scale_set: ScaleSetRow) -> None:
    """Raise ArmError if the scale set asks for more machines of a size that is barred."""
    zones = [str(zone) for zone in scale_set.model.get("zones") or []]
    grows = scale_set.capacity > len(scale_set.instances)
    if grows and bars(fabric, scale_set.vm_size, scale_set.location, zones):
        raise sku_not_available(scale_set.name, scale_set.location, scale_set.subscription)


def _as_response(fabric: Fabric) -> Response:
    return JSONResponse({"value": [asdict(r) for r in fabric.state.restrictions.values()]})
