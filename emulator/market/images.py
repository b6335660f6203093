"""Versions of marketplace images. The one publisher is that of Azure's HPC images."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.errors import ArmError

# The names of azhpc-images' releases; which versions there are is made up.
VERSIONS = {
    "microsoft-dsvm/ubuntu-hpc/2204": ("22.04.2025041101", "22.04.2025081401"),
    "microsoft-dsvm/ubuntu-hpc/2404": ("24.04.2025081401",),
}


async def list_versions(request: Request) -> Response:
    """Every version of an image, in a bare list as Azure answers; 404 for an unknown image."""
    names = request.path_params
    image = "/".join((names["publisher"], names["offer"], names["sku"])).lower()
    if image not in VERSIONS:
        raise ArmError(404, "NotFound", "Artifact: VMImage was not found.")
    place = names["location"].lower()
    return JSONResponse(
        [{"location": place, "name": v, "id": f"{request.url.path}/{v}"} for v in VERSIONS[image]]
    )
