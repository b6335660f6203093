"""What a subscription is registered for: resource providers, and features of them.

Providers are registered from the start and features are not, as in a subscription of some age.
The state keeps a resource for each that differs from that.
"""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.arm.front_door import fabric_of
from emulator.core.state import EmulatorState, ResourceRow

KIND = "Microsoft.Resources/registrations"  # ours: Azure shows these in no list of resources
FEATURES = "/subscriptions/{}/providers/Microsoft.Features/providers/Microsoft.Compute/features/{}"


def has_feature(state: EmulatorState, subscription: str, feature: str) -> bool:
    """Whether the subscription has this feature of Microsoft.Compute."""
    return _is_registered(state, FEATURES.format(subscription, feature))


def has_provider(state: EmulatorState, subscription: str, namespace: str) -> bool:
    """Whether the subscription is registered for this provider."""
    return _is_registered(state, f"/subscriptions/{subscription}/providers/{namespace}")


def registration(state: EmulatorState, path: str) -> str:
    """Return Azure's word for the registration state of a provider or a feature."""
    return "Registered" if _is_registered(state, path) else "NotRegistered"


async def show_feature(request: Request) -> Response:
    """Show a feature, and whether it is registered."""
    path = request.url.path
    properties = {"state": registration(fabric_of(request).state, path)}
    name = path.rpartition("/")[2]
    return JSONResponse({"id": path, "name": name, "properties": properties})


async def change(request: Request) -> Response:
    """Register or unregister, at once; Azure takes minutes for a feature."""
    fabric, (path, _, order) = fabric_of(request), request.url.path.rpartition("/")
    row = ResourceRow(id=path, type=KIND, location="global", body={}, created_at=fabric.now())
    fabric.state.remove(row)
    if (order.lower() == "register") is _is_feature(path):
        fabric.state.put(row)
    fabric.changed()
    return JSONResponse({"id": path})


def _is_feature(path: str) -> bool:
    return "/features/" in path.lower()


def _is_registered(state: EmulatorState, path: str) -> bool:
    return _is_feature(path) is (path.lower() in state.resources)
