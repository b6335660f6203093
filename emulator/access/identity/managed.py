"""Tokens without a secret: the metadata service's, one per VM, and App Service's."""

from dataclasses import replace

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.access.identity import directory
from emulator.access.identity.directory import IDENTITY, SUBSCRIPTION, TENANT, Principal
from emulator.access.identity.tokens import LIFETIME, lifetime, signer
from emulator.arm.front_door import fabric_of
from emulator.core.errors import ArmError
from emulator.core.state import EmulatorState, ResourceRow, ScaleSetRow
from emulator.fabric import Fabric

APP_SERVICE_VERSION = "2019-08-01"
_SEVERAL = (
    "Multiple user assigned identities exist, please specify the clientId / resourceId of the "
    "identity in the token request"
)


async def of_vm(request: Request) -> Response:
    """GET /metadata/identity/oauth2/token in a VM: one of the identities of its scale set."""
    fabric, query = fabric_of(request), request.query_params
    token = request.path_params["token"]
    machine = fabric.by_token(token)
    if machine is None:
        raise ArmError(404, "NotFound", "This VM is gone.")
    if request.headers.get("metadata", "").lower() != "true":
        return _refused("Required metadata header not specified")
    for name in ("api-version", "resource"):
        if not query.get(name):
            return _refused(f"Required query variable '{name}' is missing")
    principals = _identities(fabric.state, machine[0])
    selector = query.get("client_id"), query.get("object_id"), _resource_id(request)
    if not any(selector):
        # The one of the system comes first; of the user's there may only be one.
        if len(principals) > 1 and principals[0].resource_id.lower() != machine[0].key:
            return _refused(_SEVERAL)
        chosen = principals[:1]
    else:
        chosen = [p for p in principals if _is(p, *selector)]
    if not chosen:
        return _refused("Identity not found")
    return JSONResponse(_answer(fabric, chosen[0], query["resource"]))


async def of_app_service(request: Request) -> Response:
    """GET on IDENTITY_ENDPOINT: who holds the header is the principal."""
    fabric, query = fabric_of(request), request.query_params
    if query.get("api-version") != APP_SERVICE_VERSION:
        return _app_refused(400, f"The api-version must be {APP_SERVICE_VERSION}.")
    if not query.get("resource"):
        return _app_refused(400, "The parameter resource is required.")
    header = request.headers.get("x-identity-header", "")
    signs = signer(fabric)
    principals = [
        p
        for p in directory.principals(fabric.state)
        if signs.identity_header(p.client_id) == header
    ]
    if not principals:
        return _app_refused(401, "The X-IDENTITY-HEADER is missing or unknown.")
    selector = query.get("client_id"), query.get("principal_id"), _resource_id(request)
    if any(selector) and not _is(principals[0], *selector):
        text = "No Managed Identity found for specified ClientId/ResourceId/PrincipalId."
        return _app_refused(400, text)
    full = _answer(fabric, principals[0], query["resource"])
    members = ("access_token", "expires_on", "resource", "token_type", "client_id")
    return JSONResponse({k: full[k] for k in members})


def reachable(fabric: Fabric, principal: Principal) -> dict[str, str]:
    """Return the environment variables that make a program this principal, as on App Service."""
    return {
        "IDENTITY_ENDPOINT": f"{fabric.metadata_base}/msi/token",
        "IDENTITY_HEADER": signer(fabric).identity_header(principal.client_id),
    }


def show_ids(state: EmulatorState, scale_set: ScaleSetRow) -> ScaleSetRow:
    """Return a version with the ids of its identities in the model, where ARM shows them."""
    identity = scale_set.model.get("identity")
    if not isinstance(identity, dict):
        return scale_set
    extended = dict(identity)
    if directory.has_system(scale_set):
        extended |= {"principalId": directory.of_system(scale_set).object_id, "tenantId": TENANT}
    if users := identity.get("userAssignedIdentities"):
        resources = {name: state.resources.get(name.lower()) for name in users}
        ids = {name: r.body["properties"] for name, r in resources.items() if r and _is_identity(r)}
        extended["userAssignedIdentities"] = {
            name: {k: ids[name][k] for k in ("principalId", "clientId")} if name in ids else {}
            for name in users
        }
    return replace(scale_set, model=scale_set.model | {"identity": extended})


def _identities(state: EmulatorState, scale_set: ScaleSetRow) -> list[Principal]:
    """Those assigned to the scale set that exist, the system's first."""
    identity = scale_set.model.get("identity") or {}
    principals = [directory.of_system(scale_set)] if directory.has_system(scale_set) else []
    for name in identity.get("userAssignedIdentities") or {}:
        resource = state.resources.get(name.lower())
        if resource and _is_identity(resource):
            principals.append(directory.identity(resource))
    return principals


def _is_identity(resource: ResourceRow) -> bool:
    return resource.type.lower() == IDENTITY.lower()


def _is(
    principal: Principal, client_id: str | None, object_id: str | None, resource: str | None
) -> bool:
    pairs = (
        (client_id, principal.client_id),
        (object_id, principal.object_id),
        (resource, principal.resource_id),
    )
    return all(
        requested is None or requested.lower() == actual.lower() for requested, actual in pairs
    )


def _resource_id(request: Request) -> str | None:
    """Return the resource id of the identity asked for, in any of the clients' spellings."""
    query = request.query_params
    return query.get("mi_res_id") or query.get("msi_res_id") or query.get("resource_id")


def _answer(fabric: Fabric, principal: Principal, resource: str) -> dict[str, str]:
    issued_at, expires_at = lifetime(fabric)
    about = principal.resource_id or _host_of(principal)
    access = signer(fabric).issue(principal, resource, issued_at, expires_at, xms_mirid=about)
    return {
        "access_token": access,
        "client_id": principal.client_id,
        "expires_in": str(LIFETIME),
        "expires_on": str(expires_at),
        "ext_expires_in": str(LIFETIME),
        "not_before": str(issued_at),
        "resource": resource,
        "token_type": "Bearer",
    }


def _host_of(principal: Principal) -> str:
    """Return the id of an App Service app that stands for a principal; `az` expects one."""
    group = f"/subscriptions/{SUBSCRIPTION}/resourcegroups/emulator"
    return f"{group}/providers/Microsoft.Web/sites/{principal.name}"


def _refused(text: str) -> Response:
    return JSONResponse({"error": "invalid_request", "error_description": text}, status_code=400)


def _app_refused(status: int, text: str) -> Response:
    return JSONResponse({"statusCode": status, "message": text}, status_code=status)
