"""The VMs of a scale set."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator import evictions
from emulator.errors import instance_not_found
from emulator.front_door import fabric_of, page
from emulator.scale_sets import find_scale_set
from emulator.state import Instance, ScaleSet
from emulator.views import instance_body, instance_view


async def list_all(request: Request) -> Response:
    """List them, with $expand=instanceView if wanted."""
    fabric, scale_set = fabric_of(request), find_scale_set(request)
    view = _wants_view(request)
    rows = [instance_body(fabric, scale_set, i, view=view) for i in scale_set.instances.values()]
    return page(request, rows)


async def get(request: Request) -> Response:
    """Show one."""
    scale_set, instance = _find(request)
    body = instance_body(fabric_of(request), scale_set, instance, view=_wants_view(request))
    return JSONResponse(body)


async def view(request: Request) -> Response:
    """Show how one is doing."""
    _, instance = _find(request)
    return JSONResponse(instance_view(fabric_of(request), instance))


async def simulate_eviction(request: Request) -> Response:
    """Announce the eviction of one; it goes when its notice is over, or when it says so."""
    fabric = fabric_of(request)
    scale_set, instance = _find(request)
    evictions.announce(scale_set, instance, fabric.now(), fabric.settings.notice_seconds)
    fabric.changed()
    return Response(status_code=204)


def _find(request: Request) -> tuple[ScaleSet, Instance]:
    scale_set = find_scale_set(request)
    name = request.path_params["instance"]
    if (instance := scale_set.instances.get(name)) is None:
        raise instance_not_found(name)
    return scale_set, instance


def _wants_view(request: Request) -> bool:
    return "instanceview" in request.query_params.get("$expand", "").lower()
