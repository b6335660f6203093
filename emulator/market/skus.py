"""Resource SKUs: what each size can do, and where the subscription may have it."""

import re
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.arm.front_door import fabric_of
from emulator.core.catalog import SizeOffer, VmSize, catalog, region_name
from emulator.core.errors import invalid
from emulator.fabric import Fabric
from emulator.market import restrictions

FILTER = re.compile(r"\s*location\s+eq\s+'([^']*)'\s*", re.IGNORECASE)


async def list_all(request: Request) -> Response:
    """Every size in every region, or in the one of $filter; never in pages, as Azure."""
    fabric, filter_text = fabric_of(request), request.query_params.get("$filter", "")
    match = FILTER.fullmatch(filter_text)
    if filter_text and not match:
        raise invalid(
            f"The filter '{filter_text}' is not supported. Only location filter is supported "
            "currently: location eq 'eastus'.",
            "InvalidFilterInQueryString",
        )
    location = region_name(match[1]) if match else ""
    offers = [o for o in catalog().offers if location in ("", o.location)]
    return JSONResponse({"value": [_sku(fabric, offer) for offer in offers]})


def _sku(fabric: Fabric, offer: SizeOffer) -> dict[str, Any]:
    name = offer.size.name
    return {
        "resourceType": "virtualMachines",
        "name": name,
        "tier": "Standard",
        "size": name.removeprefix("Standard_"),
        "family": offer.size.family,
        "locations": [offer.location],
        "locationInfo": [
            {"location": offer.location, "zones": list(offer.zones), "zoneDetails": []}
        ],
        "capabilities": [{"name": n, "value": v} for n, v in _capabilities(offer.size).items()],
        "restrictions": _restrictions(fabric, offer),
    }


def _capabilities(size: VmSize) -> dict[str, str]:
    return {
        "MaxResourceVolumeMB": str(size.temp_gib * 1024),
        "OSVhdSizeMB": "1047552",
        "vCPUs": str(size.vcpus),
        "MemoryPreservingMaintenanceSupported": "False",
        "HyperVGenerations": "V2" if size.rdma else "V1,V2",
        "MemoryGB": str(size.memory_gib),
        "CpuArchitectureType": "x64",
        "LowPriorityCapable": "True",
        "PremiumIO": "True",
        "VMDeploymentTypes": "IaaS",
        "vCPUsAvailable": str(size.vcpus),
        "GPUs": str(size.gpus),
        "vCPUsPerCore": "1",
        "EphemeralOSDiskSupported": "True",
        "SupportedEphemeralOSDiskPlacements": size.os_disks,
        "EncryptionAtHostSupported": "True",
        "AcceleratedNetworkingEnabled": "True",
        "RdmaEnabled": str(size.rdma),
        "MaxNetworkInterfaces": "8" if size.rdma else "2",
    } | ({} if size.trusted_launch else {"TrustedLaunchDisabled": "True"})


def _restrictions(fabric: Fabric, offer: SizeOffer) -> list[dict[str, Any]]:
    restriction = restrictions.find(fabric, offer.size.name, offer.location)
    if restriction is None:
        return []
    info: dict[str, Any] = {"locations": [offer.location]}
    return [
        {
            "type": "Zone" if restriction.zones else "Location",
            "values": [offer.location],
            "restrictionInfo": info | ({"zones": restriction.zones} if restriction.zones else {}),
            "reasonCode": restriction.reason,
        }
    ]
