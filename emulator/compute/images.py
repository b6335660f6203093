"""Marketplace images, as far as clients look for one before they name it: each has one version.

`az vmss create --image URN` asks for the versions, then for the one (azure-cli, `_actions.py` and
`_validators.py` of its vm module). Nothing is booted from an image: VMs here are processes.
"""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.compute.usages import Region
from emulator.core.errors import ArmError
from emulator.parts import COMPUTE, SUBSCRIPTION

VERSION = "1.0.0"
OS_DISK_GIB = 30
IMAGES = {  # publisher -> offer -> skus
    "Canonical": {
        "0001-com-ubuntu-server-jammy": ("22_04-lts-gen2", "22_04-lts"),
        "ubuntu-24_04-lts": ("server", "server-gen1"),
    },
    "microsoft-dsvm": {"ubuntu-hpc": ("2204", "2404")},
    "Debian": {"debian-12": ("12-gen2", "12")},
}
PUBLISHERS = SUBSCRIPTION + COMPUTE + "/locations/{location}/publishers"
OFFERS = PUBLISHERS + "/{publisher}/artifacttypes/vmimage/offers"
SKUS = OFFERS + "/{offer}/skus"
VERSIONS = SKUS + "/{sku}/versions"
PATHS = (PUBLISHERS, OFFERS, SKUS, VERSIONS, VERSIONS + "/{version}")


async def list_images(request: Request) -> Response:
    """List the names at one level (publishers, offers, skus, versions), or show one version."""
    names = dict(request.path_params)
    location = Region.of(names["subscription"], names["location"]).location
    rows: Any = IMAGES
    for level in ("publisher", "offer", "sku"):
        if level in names:
            rows = _inside(rows, names[level])
    if rows is not None:
        return JSONResponse([_row(request, name, location) for name in rows])
    if "version" not in names:
        return JSONResponse([_row(request, VERSION, location)])
    if names["version"] not in (VERSION, "latest"):
        raise _missing(names["version"])
    properties = {
        "osDiskImage": {"operatingSystem": "Linux", "sizeInGb": OS_DISK_GIB},
        "dataDiskImages": [],
        "hyperVGeneration": "V2",
        "architecture": "x64",
        "features": [],
    }
    return JSONResponse({**_row(request, "", location), "name": VERSION, "properties": properties})


def _inside(rows: Any, name: str) -> Any:  # noqa: ANN401 - a level of IMAGES; None: one sku
    key = next((r for r in rows if r.lower() == name.lower()), None)
    if key is None:
        raise _missing(name)
    return rows[key] if isinstance(rows, dict) else None


def _row(request: Request, name: str, location: str) -> dict[str, str]:
    path = request.url.path.rstrip("/")
    return {"id": f"{path}/{name}".rstrip("/"), "name": name, "location": location}


def _missing(name: str) -> ArmError:
    return ArmError(404, "NotFound", f"Artifact: VMImage '{name}' was not found.")
