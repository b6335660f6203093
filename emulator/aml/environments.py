"""Environments: which image a job's command runs in."""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.aml.assets import (
    ENVIRONMENT,
    find_workspace,
    lookup,
    of_type,
    properties,
    shown,
    user_error,
)
from emulator.fabric import Fabric
from emulator.front_door import fabric_of, page, read_json
from emulator.state import Resource

CURATED = "mcr.microsoft.com/azureml/curated"  # the images behind the registry "azureml"


async def put(request: Request) -> Response:
    """Register a version; an existing one keeps its image."""
    fabric, id_ = fabric_of(request), _id(request)
    wanted = (await read_json(request)).get("properties")
    if not isinstance(wanted, dict) or not (wanted.get("image") or wanted.get("build")):
        raise user_error(400, "An environment needs an image or a build context.")
    if wanted.get("build") or wanted.get("condaFile"):
        raise user_error(400, "The emulator builds no images: give the environment an image only.")
    old = lookup(fabric, id_)
    if old and properties(old)["image"] != wanted["image"]:
        raise user_error(
            409,
            f"Environment {_name(request)} is already registered with another definition. "
            "Register a new version.",
        )
    version = old or Resource(
        id=id_, type=ENVIRONMENT, location="", body={}, created_at=fabric.now()
    )
    facts = {"environmentType": "UserCreated", "isArchived": False, "osType": "Linux"}
    version.body = {"properties": facts | wanted | {"provisioningState": "Succeeded"}}
    fabric.state.resources[version.key] = version
    fabric.changed()
    return JSONResponse(shown(version), status_code=200 if old else 201)


async def get(request: Request) -> Response:
    """Show one version."""
    if (found := lookup(fabric_of(request), _id(request))) is None:
        raise user_error(404, f"Environment {_name(request)} is not found.")
    return JSONResponse(shown(found))


async def list_versions(request: Request) -> Response:
    """List the versions of one environment, the newest first."""
    start = _container(request).lower() + "/versions/"
    rows = of_type(fabric_of(request), ENVIRONMENT, find_workspace(request))
    mine = [r for r in rows if r.key.startswith(start)]
    return page(request, [shown(r) for r in reversed(mine)])


async def get_container(request: Request) -> Response:
    """Show an environment without its versions."""
    start = _container(request).lower() + "/versions/"
    rows = of_type(fabric_of(request), ENVIRONMENT, find_workspace(request))
    mine = [r for r in rows if r.key.startswith(start)]
    if not mine:
        raise user_error(404, f"Environment {request.path_params['name']} is not found.")
    return JSONResponse(
        {
            "id": _container(request),
            "name": request.path_params["name"],
            "type": f"{ENVIRONMENT.removesuffix('/versions')}",
            "properties": {"latestVersion": mine[-1].name, "isArchived": False},
        }
    )


def image_of(fabric: Fabric, workspace: str, id_: str) -> str:
    """The image of an environment of the workspace, or of Azure's own, or ArmError."""
    parts = id_.removeprefix("azureml://").strip("/").split("/")
    if parts[:3] == ["registries", "azureml", "environments"] and len(parts) == 6:
        return f"{CURATED}/{parts[3]}:{parts[-1]}"
    found = lookup(fabric, id_.removeprefix("azureml:"))
    if found is None or found.type != ENVIRONMENT or not found.key.startswith(workspace):
        raise user_error(400, f"Environment {':'.join(parts[-3::2])} is not found.")
    image: Any = properties(found)["image"]
    return str(image)


def _container(request: Request) -> str:
    return f"{find_workspace(request).id}/environments/{request.path_params['name']}"


def _id(request: Request) -> str:
    return f"{_container(request)}/versions/{request.path_params['version']}"


def _name(request: Request) -> str:
    return f"{request.path_params['name']}:{request.path_params['version']}"
