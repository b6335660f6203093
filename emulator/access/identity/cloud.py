"""The cloud as clients discover it: endpoints, tenants, subscriptions."""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.access import enforcement
from emulator.access.identity.directory import SUBSCRIPTION, TENANT
from emulator.arm.front_door import base_url, fabric_of


async def endpoints(request: Request) -> Response:
    """Show the cloud's endpoints, as `az cloud register` reads them."""
    url = base_url(request)
    return JSONResponse(
        {
            "name": "RekindleEmulator",
            "resourceManager": url,
            "portal": url,
            "authentication": {
                "loginEndpoint": url,
                "audiences": [url],
                "tenant": "common",
                "identityProvider": "AAD",
            },
            "graph": url,
            "graphAudience": url,
            "microsoftGraphResourceId": url,
            "gallery": url,
            "batch": url,
            "media": url,
            "vmImageAliasDoc": f"{url}/aliases.json",
            "suffixes": {"storage": "localhost", "keyVaultDns": "localhost"},
        }
    )


async def subscriptions(request: Request) -> Response:
    """List the one subscription, if the caller has any role in it."""
    is_visible = enforcement.sees_subscription(
        fabric_of(request), request.scope["caller"], SUBSCRIPTION
    )
    rows = [_subscription(SUBSCRIPTION)] if is_visible else []
    return JSONResponse({"value": rows, "count": {"type": "Total", "value": len(rows)}})


async def subscription(request: Request) -> Response:
    """Any subscription: none is refused."""
    return JSONResponse(_subscription(request.path_params["subscription"]))


async def tenants(_: Request) -> Response:
    """List the one tenant."""
    row = {
        "id": f"/tenants/{TENANT}",
        "tenantId": TENANT,
        "displayName": "Azure on localhost",
        "defaultDomain": "localhost",
        "tenantCategory": "Home",
    }
    return JSONResponse({"value": [row]})


def _subscription(name: str) -> dict[str, Any]:
    return {
        "id": f"/subscriptions/{name}",
        "subscriptionId": name,
        "tenantId": TENANT,
        "displayName": "Azure on localhost",
        "state": "Enabled",
        "authorizationSource": "RoleBased",
        "managedByTenants": [],
    }
