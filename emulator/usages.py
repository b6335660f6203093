"""Core quotas: what is used of them, and the refusal beyond."""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.catalog import catalog
from emulator.errors import ArmError, quota_exceeded
from emulator.fabric import Fabric
from emulator.front_door import fabric_of
from emulator.state import ScaleSet

REGULAR_QUOTA = 10_000  # cores per region; never the one that bites


async def list_all(request: Request) -> Response:
    """The quotas of one region."""
    fabric, location = fabric_of(request), request.path_params["location"].lower()
    spot = used_cores(fabric, location, spot=True)
    regular = used_cores(fabric, location, spot=False)
    sets = sum(s.location == location for s in fabric.state.scale_sets.values())
    return JSONResponse(
        {
            "value": [
                _usage("cores", "Total Regional vCPUs", regular, REGULAR_QUOTA),
                _usage(
                    "lowPriorityCores",
                    "Total Regional Spot vCPUs",
                    spot,
                    fabric.settings.spot_quota,
                ),
                _usage("virtualMachineScaleSets", "Virtual Machine Scale Sets", sets, 2500),
            ]
        }
    )


def used_cores(fabric: Fabric, location: str, *, spot: bool) -> int:
    """Cores that instances of one capacity type hold in a region, those being created too."""
    here = [
        s for s in fabric.state.scale_sets.values() if s.location == location and s.spot is spot
    ]
    return sum(len(s.instances) * _vcpus(s) for s in here)


def check_quota(fabric: Fabric, wanted: ScaleSet, vcpus: int) -> None:
    """Raise ArmError if bringing the scale set to its capacity exceeds the region's quota."""
    more = (wanted.capacity - len(wanted.instances)) * vcpus
    usage = used_cores(fabric, wanted.location, spot=wanted.spot)
    limit = fabric.settings.spot_quota if wanted.spot else REGULAR_QUOTA
    if more > 0 and usage + more > limit:
        quota = "LowPriorityCores" if wanted.spot else "Cores"
        raise quota_exceeded(quota, wanted.location, limit=limit, usage=usage, more=more)


def used_up(fabric: Fabric, wanted: ScaleSet, code: str) -> ArmError:
    """The refusal as if not one more core were allowed."""
    usage = used_cores(fabric, wanted.location, spot=wanted.spot)
    more = wanted.capacity * _vcpus(wanted)
    quota = "LowPriorityCores" if wanted.spot else "Cores"
    return quota_exceeded(
        quota,
        wanted.location,
        limit=usage,
        usage=usage,
        more=more,
        code=code or "OperationNotAllowed",
    )


def _vcpus(scale_set: ScaleSet) -> int:
    size = catalog().size(scale_set.vm_size)
    assert size, f"{scale_set.vm_size} was checked when {scale_set.name} was put"
    return size.vcpus


def _usage(name: str, text: str, current: int, limit: int) -> dict[str, Any]:
    return {
        "unit": "Count",
        "currentValue": current,
        "limit": limit,
        "name": {"value": name, "localizedValue": text},
    }
