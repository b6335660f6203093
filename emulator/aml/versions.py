"""Environments and models: names with versions, each of which keeps what it was made of.

An environment is the image that a job's command runs in. A model is the address of its files, and
a name for them: nothing is copied.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.aml.assets import (
    ENVIRONMENT,
    PROVIDER,
    find_workspace,
    lookup,
    of_type,
    part_id,
    properties,
    user_error,
)
from emulator.aml.assets import resource_as_json as as_arm
from emulator.arm.front_door import fabric_of, page, read_json
from emulator.core.state import ResourceRow
from emulator.fabric import Fabric

CURATED = "mcr.microsoft.com/azureml/curated"  # the images behind the registry "azureml"
MODEL_TYPES = ("custom_model", "mlflow_model", "triton_model")
# As azure-ai-ml sends them: jobs and datastores of the workspace, and blobs. Azurite has http here.
MODEL_URI = re.compile(
    r"(?:https|http(?=://127\.0\.0\.1:))://.+"
    r"|azureml://(?:.+/)?(?:datastores/.+|jobs/(?P<job>[^/]+)/outputs/.+)"
)


@dataclass(frozen=True)
class VersionedKind:
    """What is kept in versions; ``check`` raises ArmError for what is none."""

    noun: str
    fixed: str  # the member that a version keeps
    defaults: dict[str, Any]
    check: Callable[[Fabric, ResourceRow, dict[str, Any]], None]


def _check_environment(
    _fabric: Fabric, _workspace: ResourceRow, definition: dict[str, Any]
) -> None:
    if not (definition.get("image") or definition.get("build")):
        raise user_error(400, "An environment needs an image or a build context.")
    if definition.get("build") or definition.get("condaFile"):
        raise user_error(400, "The emulator builds no images: give the environment an image only.")


def _check_model(fabric: Fabric, workspace: ResourceRow, definition: dict[str, Any]) -> None:
    match = MODEL_URI.fullmatch(str(definition.get("modelUri")))
    if not match:
        text = "modelUri must be an https address, or a path of a job or a datastore."
        raise user_error(400, text)
    if definition.get("modelType", MODEL_TYPES[0]) not in MODEL_TYPES:
        raise user_error(400, f"modelType must be one of {', '.join(MODEL_TYPES)}.")
    job = match["job"]
    if job and lookup(fabric, f"{workspace.id}/jobs/{job}") is None:
        raise user_error(404, f"Could not find job {job}.")


USER_CREATED = {"environmentType": "UserCreated", "osType": "Linux"}
# The client reads `flavors` of every answer (azure-ai-ml 1.35.2, Model._from_rest_object).
CUSTOM: dict[str, Any] = {"modelType": "custom_model", "flavors": {}}
KINDS = {
    "environments": VersionedKind("Environment", "image", USER_CREATED, _check_environment),
    "models": VersionedKind("Model", "modelUri", CUSTOM, _check_model),
}


def image_of(fabric: Fabric, workspace: str, id_: str) -> str:
    """Return the image of an environment, also of Azure's own, or raise ArmError."""
    parts = id_.removeprefix("azureml://").strip("/").split("/")
    if parts[:3] == ["registries", "azureml", "environments"] and len(parts) == 6:
        return f"{CURATED}/{parts[3]}:{parts[-1]}"
    environment = lookup(fabric, id_.removeprefix("azureml:"))
    if (
        environment is None
        or environment.type != ENVIRONMENT
        or not environment.key.startswith(workspace)
    ):
        raise user_error(400, f"Environment {':'.join(parts[-3::2])} is not found.")
    return str(properties(environment)["image"])


async def put(request: Request) -> Response:
    """Register a version; of an existing one what it is made of stays."""
    fabric, id_, kind = fabric_of(request), _id(request), KINDS[_kind(request)]
    definition = (await read_json(request)).get("properties")
    if not isinstance(definition, dict):
        raise user_error(400, "A version needs properties.")
    kind.check(fabric, find_workspace(request), definition)
    old = lookup(fabric, id_)
    if old and properties(old)[kind.fixed] != definition[kind.fixed]:
        raise user_error(
            409,
            f"{kind.noun} {_name(request)} is already registered with another definition. "
            "Register a new version.",
        )
    properties_ = (
        {"isArchived": False, "tags": {}, "properties": {}}
        | kind.defaults
        | {name: value for name, value in definition.items() if value is not None}
        | {"provisioningState": "Succeeded"}
    )
    version = ResourceRow(
        id=old.id if old else id_,
        type=_type(request),
        location="",
        body={"properties": properties_},
        created_at=old.created_at if old else fabric.now(),
    )
    fabric.state.put(version)
    fabric.changed()
    return JSONResponse(as_arm(version), status_code=200 if old else 201)


async def get(request: Request) -> Response:
    """Show one version."""
    return JSONResponse(as_arm(_find(request)))


async def delete(request: Request) -> Response:
    """Forget one version."""
    fabric = fabric_of(request)
    if version := lookup(fabric, _id(request)):
        fabric.state.remove(version)
        fabric.changed()
    return Response(status_code=200 if version else 204)


async def list_versions(request: Request) -> Response:
    """List the versions of one name, the newest first; archived ones only if asked for."""
    rows = [r for r in reversed(_versions(request)) if _matches_view(request, r)]
    top = request.query_params.get("$top", "")
    return page(request, [as_arm(r) for r in rows[: int(top) if top.isdecimal() else None]])


async def list_all(request: Request) -> Response:
    """List the names."""
    rows = [r for r in _all(request) if _matches_view(request, r)]
    last = {r.id.rsplit("/", 3)[1]: r for r in rows}
    return page(request, [_container(request, name) for name in last])


async def get_container(request: Request) -> Response:
    """Show a name without its versions."""
    name = request.path_params["name"]
    if not _versions(request):
        raise user_error(404, f"{KINDS[_kind(request)].noun} {name} is not found.")
    return JSONResponse(_container(request, name))


def _container(request: Request, name: str) -> dict[str, Any]:
    numbers = [r.name for r in _all(request) if f"/{name}/versions/".lower() in r.key]
    following = max([int(n) for n in numbers if n.isdecimal()], default=0) + 1
    return {
        "id": f"{find_workspace(request).id}/{_kind(request)}/{name}",
        "name": name,
        "type": f"{PROVIDER}/workspaces/{_kind(request)}",
        "properties": {
            "latestVersion": numbers[-1],
            "nextVersion": str(following),
            "isArchived": False,
            "tags": {},
            "properties": {},
        },
    }


def _find(request: Request) -> ResourceRow:
    if (version := lookup(fabric_of(request), _id(request))) is None:
        raise user_error(404, f"{KINDS[_kind(request)].noun} {_name(request)} is not found.")
    return version


def _all(request: Request) -> list[ResourceRow]:
    return of_type(fabric_of(request), _type(request), find_workspace(request))


def _versions(request: Request) -> list[ResourceRow]:
    middle = f"/{_kind(request)}/{request.path_params['name']}/versions/".lower()
    return [r for r in _all(request) if middle in r.key]


def _matches_view(request: Request, version: ResourceRow) -> bool:
    view = request.query_params.get("listViewType", "ActiveOnly").lower()
    return view == "all" or bool(properties(version)["isArchived"]) is (view == "archivedonly")


def _kind(request: Request) -> str:
    """Return the kind in the path below the workspace: "environments" or "models"."""
    return request.url.path.split("/")[9].lower()


def _type(request: Request) -> str:
    return f"{PROVIDER}/workspaces/{_kind(request)}/versions"


def _id(request: Request) -> str:
    return part_id(request, _kind(request) + "/{name}/versions/{version}")


def _name(request: Request) -> str:
    return f"{request.path_params['name']}:{request.path_params['version']}"
