"""What a subscription is registered for: resource providers, and features of them.

Providers are registered from the start and features are not, as in a subscription of some age.
The state keeps a resource for each that differs from that.
"""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.arm.front_door import fabric_of
from emulator.core.errors import ArmError
from emulator.core.state import ResourceRow
from emulator.fabric import Fabric

KIND = "Microsoft.Resources/registrations"  # ours: Azure shows these in no list of resources
FEATURES = "/subscriptions/{}/providers/Microsoft.Features/providers/Microsoft.Compute/features/{}"


def has_feature(fabric: Fabric, subscription: str, feature: str) -> bool:
    """Whether the subscription has this feature of Microsoft.Compute."""
    return _is_registered(fabric, FEATURES.format(subscription, feature))


def check_provider(fabric: Fabric, subscription: str, namespace: str) -> None:
    """Raise ArmError where the provider is not registered."""
    if not _is_registered(fabric, f"/subscriptions/{subscription}/providers/{namespace}"):
        raise ArmError(
            409,
            "MissingSubscriptionRegistration",
            f"The subscription is not registered to use namespace '{namespace}'. See "
            "https://aka.ms/rps-not-found for how to register subscriptions.",
        )


def state(fabric: Fabric, path: str) -> str:
    """Return Azure's word for the registration state of a provider or a feature."""
    return "Registered" if _is_registered(fabric, path) else "NotRegistered"


async def show(request: Request) -> Response:
    """Show a feature, and whether it is registered."""
    path = request.url.path
    properties = {"state": state(fabric_of(request), path)}
    name = path.rpartition("/")[2]
    return JSONResponse({"id": path, "name": name, "properties": properties})


async def change(request: Request) -> Response:
    """Register or unregister, at once; Azure takes minutes for a feature."""
    fabric, (path, _, order) = fabric_of(request), request.url.path.rpartition("/")
    made = ResourceRow(id=path, type=KIND, location="global", body={}, created_at=fabric.now())
    fabric.state.remove(made)
    if (order.lower() == "register") is _is_feature(path):
        fabric.state.put(made)
    fabric.changed()
    return JSONResponse({"id": path})


def _is_feature(path: str) -> bool:
    return "/features/" in path.lower()


def _is_registered(fabric: Fabric, path: str) -> bool:
    return _is_feature(path) is (path.lower() in fabric.state.resources)
