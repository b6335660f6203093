"""The corner of Microsoft Graph that `az role assignment` asks: whose id is this."""

import re
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.access import tokens
from emulator.access.directory import Principal, by_object, principals
from emulator.front_door import fabric_of, read_json

_NAMED = re.compile(r"(?:eq|startswith\([^,]*,)\s*'([^']*)'", re.IGNORECASE)


async def service_principals(request: Request) -> Response:
    """Those that have one of the names in `$filter`: client id, object id or display name."""
    _check(request)
    text = request.query_params.get("$filter", "")
    names = {name.lower() for name in _NAMED.findall(text)}
    found = [
        _shown(p)
        for p in principals(fabric_of(request).state)
        if not text or names & {p.client_id.lower(), p.object_id.lower(), p.name.lower()}
    ]
    return JSONResponse({"value": found})


async def nobody(request: Request) -> Response:
    """There are no users and no groups in this directory."""
    _check(request)
    return JSONResponse({"value": []})


async def by_ids(request: Request) -> Response:
    """Those of the ids that are somebody's."""
    _check(request)
    ids = (await read_json(request)).get("ids")
    state = fabric_of(request).state
    found = [by_object(state, str(name)) for name in ids] if isinstance(ids, list) else []
    return JSONResponse({"value": [_shown(p) for p in found if p]})


def _check(request: Request) -> None:
    header = request.headers.get("authorization", "")
    tokens.check(fabric_of(request), header, request.url.hostname or "")


def _shown(principal: Principal) -> dict[str, Any]:
    return {
        "@odata.type": "#microsoft.graph.servicePrincipal",
        "id": principal.object_id,
        "appId": principal.client_id,
        "displayName": principal.name,
        "servicePrincipalNames": [principal.client_id],
        "servicePrincipalType": "ManagedIdentity" if principal.resource_id else "Application",
    }
