"""The two applications, ARM and the metadata service: every part of Azure, in order."""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect

from emulator.access import routes as access
from emulator.access.identity import owner
from emulator.aml import routes as aml
from emulator.arm import operations, registrations, request_log, resource_groups
from emulator.arm.api_versions import Types
from emulator.arm.front_door import (
    AnyCaseRoute,
    FrontDoor,
    client_disconnected,
    internal_error,
    refuse,
)
from emulator.arm.request_log import Logged
from emulator.arm.throttling import ThrottlingMiddleware
from emulator.capacity import reclaims
from emulator.capacity import requests as spot_capacity
from emulator.compute import scale_set_routes
from emulator.core.errors import ArmError
from emulator.deployments import requests as deployments
from emulator.deployments.running import Runner
from emulator.fabric import Fabric
from emulator.faults import admin, vm_requests
from emulator.faults.fault_answers import Faulty
from emulator.machines import maintenance, metadata
from emulator.market import routes as market
from emulator.parts import COMPUTE, GROUP, SUBSCRIPTION, AzurePart
from emulator.resources import routes as resources
from emulator.resources.table import KINDS

LOCATION = SUBSCRIPTION + COMPUTE + "/locations/{location}"

FEATURE = SUBSCRIPTION + "/providers/Microsoft.Features/providers/{namespace}/features/{feature}"
DEPLOYMENTS = GROUP + "/providers/Microsoft.Resources/deployments"
DEPLOYMENT = DEPLOYMENTS + "/{deployment}"

CORE = AzurePart(
    arm=[
        ("GET", SUBSCRIPTION + "/operationresults/{operation}", operations.result),
        ("GET", SUBSCRIPTION + "/resourceGroups", resource_groups.list_all),
        ("GET", GROUP, resource_groups.get),
        ("PUT", GROUP, resource_groups.put),
        ("PATCH", GROUP, resource_groups.patch),
        ("DELETE", GROUP, resource_groups.delete),
        ("GET", LOCATION + "/operations/{operation}", operations.poll),
        ("GET", FEATURE, registrations.show_feature),
        ("POST", FEATURE + "/register", registrations.change),
        ("GET", DEPLOYMENTS, deployments.list_all),
        ("GET", DEPLOYMENTS + "/", deployments.list_all),  # as az asks
        ("GET", DEPLOYMENT, deployments.get),
        ("PUT", DEPLOYMENT, deployments.put),
        ("POST", DEPLOYMENT + "/validate", deployments.validate),
        ("GET", DEPLOYMENT + "/operations", deployments.operations),
        ("GET", GROUP + "/deployments/{deployment}/operations", deployments.operations),  # by az
        ("GET", DEPLOYMENT + "/operationStatuses/{status}", deployments.status),
    ],
    metadata=[
        ("GET", "/vm/{token}/pull", metadata.pull),
        ("GET", "/vm/{token}/metadata/versions", metadata.versions),
        ("GET", "/vm/{token}/metadata/instance", metadata.instance),
        ("GET", "/vm/{token}/metadata/instance/{path:path}", metadata.instance),
        ("GET", "/vm/{token}/metadata/scheduledevents", metadata.scheduled_events),
        ("POST", "/vm/{token}/metadata/scheduledevents", metadata.start_requests),
    ],
    admin=[
        ("GET", "/_emulator/requests", request_log.list_requests),
        ("POST", "/_emulator/capacity", admin.capacity),
        ("POST", "/_emulator/evict", admin.evict),
        ("POST", "/_emulator/restore", admin.restore),
        ("GET", "/_emulator/virtualMachines", admin.virtual_machines),
        ("POST", "/_emulator/faults", admin.plant_fault),
        ("GET", "/_emulator/faults", admin.list_faults),
        ("DELETE", "/_emulator/faults", admin.clear_faults),
        ("POST", "/_emulator/partition", vm_requests.partition),
        ("POST", "/_emulator/disk", vm_requests.disk),
        ("POST", "/_emulator/crash", vm_requests.crash),
        ("POST", "/_emulator/events", vm_requests.announce),
        ("DELETE", "/_emulator/events", vm_requests.call_off),
        ("POST", "/_emulator/spotCapacity", spot_capacity.post),
        ("GET", "/_emulator/spotCapacity", spot_capacity.get),
        ("DELETE", "/_emulator/spotCapacity", spot_capacity.delete),
    ],
    chores=[reclaims.begin_due_evictions, maintenance.advance_events],
)
PARTS = (
    access.PART,  # first: a scope may be any path
    scale_set_routes.PART,
    aml.PART,
    CORE,
    market.PART,
    resources.PART,  # last: any provider that is left
)
ARM = [AnyCaseRoute(*route) for part in PARTS for route in (*part.arm, *part.admin)]
METADATA = [AnyCaseRoute(*route) for part in PARTS for route in (*part.metadata, *part.admin)]
TYPES = Types([route.path for route in ARM] + [f"/providers/{kind}" for kind in KINDS])


def arm(fabric: Fabric) -> Starlette:
    """Build the application of ARM, sign-in and the price list."""
    if fabric.settings.access == "enforced":
        owner.install(fabric)
    application = _application(fabric, ARM)
    fabric.chores += [chore for part in PARTS for chore in part.chores]
    fabric.chores.append(Runner(application))
    return application


def metadata_service(fabric: Fabric) -> Starlette:
    """Build the application of the metadata service, with the admin calls over plain HTTP."""
    return _application(fabric, METADATA)


def _application(fabric: Fabric, routes: list[AnyCaseRoute]) -> Starlette:
    application = Starlette(
        routes=routes,
        middleware=[
            Middleware(Logged, fabric=fabric),
            Middleware(FrontDoor, fabric=fabric, types=TYPES),
            Middleware(ThrottlingMiddleware, fabric=fabric),
            Middleware(Faulty, fabric=fabric),
        ],
        exception_handlers={
            ArmError: refuse,
            HTTPException: refuse,
            Exception: internal_error,
            ClientDisconnect: client_disconnected,
        },
    )
    application.router.redirect_slashes = False
    application.state.fabric = fabric
    return application
