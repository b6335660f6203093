"""The two applications: ARM with the price list, and the metadata service."""

from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from emulator import (
    admin,
    identity,
    instances,
    metadata,
    operations,
    prices,
    resource_groups,
    scale_sets,
    usages,
)
from emulator.errors import ArmError
from emulator.fabric import Fabric
from emulator.fault_answers import Faulty
from emulator.front_door import AnyCaseRoute, FrontDoor, refuse

SUBSCRIPTION = "/subscriptions/{subscription}"
GROUP = SUBSCRIPTION + "/resourceGroups/{group}"
COMPUTE = "/providers/Microsoft.Compute"
SCALE_SETS = COMPUTE + "/virtualMachineScaleSets"
SET = GROUP + SCALE_SETS + "/{name}"
VM = SET + "/virtualMachines/{instance}"
LOCATION = SUBSCRIPTION + COMPUTE + "/locations/{location}"

ARM: list[tuple[str, str, Callable[..., Any]]] = [
    ("GET", "/metadata/endpoints", identity.endpoints),
    ("GET", "/{tenant}/v2.0/.well-known/openid-configuration", identity.openid_configuration),
    ("POST", "/{tenant}/oauth2/v2.0/token", identity.token),
    ("GET", "/tenants", identity.tenants),
    ("GET", "/subscriptions", identity.subscriptions),
    ("GET", SUBSCRIPTION, identity.subscription),
    ("GET", SUBSCRIPTION + "/operationresults/{operation}", operations.result),
    ("GET", SUBSCRIPTION + "/resourceGroups", resource_groups.list_all),
    ("HEAD", GROUP, resource_groups.head),
    ("GET", GROUP, resource_groups.get),
    ("PUT", GROUP, resource_groups.put),
    ("DELETE", GROUP, resource_groups.delete),
    ("GET", LOCATION + "/operations/{operation}", operations.poll),
    ("GET", LOCATION + "/usages", usages.list_all),
    ("GET", SUBSCRIPTION + SCALE_SETS, scale_sets.list_all),
    ("GET", GROUP + SCALE_SETS, scale_sets.list_in_group),
    ("GET", SET, scale_sets.get),
    ("PUT", SET, scale_sets.put),
    ("DELETE", SET, scale_sets.delete),
    ("GET", SET + "/instanceView", scale_sets.view),
    ("POST", SET + "/delete", scale_sets.delete_instances),
    ("GET", SET + "/virtualMachines", instances.list_all),
    ("GET", VM, instances.get),
    ("GET", VM + "/instanceView", instances.view),
    ("POST", VM + "/simulateEviction", instances.simulate_eviction),
    ("GET", "/api/retail/prices", prices.list_all),
]

ADMIN: list[tuple[str, str, Callable[..., Any]]] = [
    ("POST", "/_emulator/capacity", admin.capacity),
    ("POST", "/_emulator/evict", admin.evict),
    ("POST", "/_emulator/restore", admin.restore),
    ("GET", "/_emulator/virtualMachines", admin.virtual_machines),
    ("POST", "/_emulator/faults", admin.plant_fault),
    ("GET", "/_emulator/faults", admin.list_faults),
    ("DELETE", "/_emulator/faults", admin.clear_faults),
]

METADATA: list[tuple[str, str, Callable[..., Any]]] = [
    ("GET", "/vm/{token}/metadata/instance", metadata.instance),
    ("GET", "/vm/{token}/metadata/scheduledevents", metadata.scheduled_events),
    ("POST", "/vm/{token}/metadata/scheduledevents", metadata.start_requests),
]


def arm(fabric: Fabric) -> Starlette:
    """What answers at management.azure.com, login.microsoftonline.com and prices.azure.com."""
    return _application(fabric, ARM + ADMIN)


def metadata_service(fabric: Fabric) -> Starlette:
    """What answers at 169.254.169.254 in every VM; and the admin calls, for plain http."""
    return _application(fabric, METADATA + ADMIN)


def _application(fabric: Fabric, routes: list[tuple[str, str, Callable[..., Any]]]) -> Starlette:
    application = Starlette(
        routes=[AnyCaseRoute(path, endpoint, methods=[verb]) for verb, path, endpoint in routes],
        middleware=[Middleware(FrontDoor, fabric=fabric), Middleware(Faulty, fabric=fabric)],
        exception_handlers={ArmError: refuse, HTTPException: refuse},
    )
    application.router.redirect_slashes = False
    application.state.fabric = fabric
    return application
