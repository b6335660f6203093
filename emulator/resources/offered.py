"""Which providers, types and regions there are, as clients ask before they choose a version."""

from collections import defaultdict
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.arm import registrations
from emulator.arm.api_versions import FIRST, NEWEST, OLDEST, PROVIDED
from emulator.arm.front_door import fabric_of, page
from emulator.core.catalog import catalog
from emulator.core.errors import ArmError
from emulator.resources.table import KINDS


async def providers(request: Request) -> Response:
    """Every provider that answers."""
    rows = _types(request)
    return page(request, [_provider(request, name, rows[name]) for name in sorted(rows)])


async def provider(request: Request) -> Response:
    """One provider."""
    name, rows = request.path_params["namespace"], _types(request)
    namespace = next((candidate for candidate in rows if candidate.lower() == name.lower()), None)
    if namespace is None:
        text = f"The resource namespace '{name}' is invalid."
        raise ArmError(404, "InvalidResourceNamespace", text)
    return JSONResponse(_provider(request, namespace, rows[namespace]))


async def change(request: Request) -> Response:
    """Register or unregister a provider, and show it."""
    await registrations.change(request)
    return await provider(request)


async def locations(request: Request) -> Response:
    """Every region."""
    start = f"/subscriptions/{request.path_params['subscription']}/locations"
    rows = [
        {
            "id": f"{start}/{region.name}",
            "name": region.name,
            "type": "Region",
            "displayName": region.display,
            "regionalDisplayName": region.display,
            "metadata": {"regionType": "Physical", "physicalLocation": region.display},
        }
        for region in catalog().regions.values()
    ]
    return JSONResponse({"value": rows})


def _types(request: Request) -> dict[str, set[str]]:
    """Return the resource types by provider, as the routes and the kinds name them."""
    types: defaultdict[str, set[str]] = defaultdict(set)
    paths = [getattr(route, "path", "") for route in request.app.routes]
    for namespace, kind in (pair for path in paths for pair in PROVIDED.findall(path)):
        if "{" not in namespace and kind and "{" not in kind:
            types[namespace].add(kind)
    for kind in KINDS.values():
        namespace, _, type_name = kind.type.partition("/")
        types[namespace].add(type_name)
    return types


def _provider(request: Request, namespace: str, kinds: set[str]) -> dict[str, Any]:
    regions = [region.display for region in catalog().regions.values()]
    versions = [NEWEST, FIRST.get(namespace.lower(), OLDEST)]
    path = f"/subscriptions/{request.path_params['subscription']}/providers/{namespace}"
    return {
        "id": path,
        "namespace": namespace,
        "registrationState": registrations.registration(fabric_of(request).state, path),
        "registrationPolicy": "RegistrationRequired",
        "resourceTypes": [
            {"resourceType": kind, "locations": regions, "apiVersions": versions}
            for kind in sorted(kinds)
        ],
    }
