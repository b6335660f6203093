"""The directory at a caller's wish: `/_emulator/principals`, loopback only."""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.access.identity import directory, managed
from emulator.access.identity.directory import Principal
from emulator.arm.front_door import fabric_of, read_order
from emulator.core.errors import invalid
from emulator.fabric import Fabric

MEMBERS = ("client_id", "secret", "name")


async def register(request: Request) -> Response:
    """Register a principal {client_id, secret, name}, or only tell about a managed identity.

    The answer has the environment in which a program is that principal without a secret.
    """
    fabric, body = fabric_of(request), await read_order(request, *MEMBERS)
    members = {name: body.get(name, "") for name in MEMBERS}
    if not members["client_id"] or not all(isinstance(v, str) for v in members.values()):
        raise invalid("'client_id' is needed; it, 'secret' and 'name' are strings.")
    principal = directory.by_client(fabric.state, members["client_id"])
    if principal is None or not principal.resource_id:
        principal = directory.register(
            fabric, members["client_id"], members["secret"], members["name"]
        )
    return JSONResponse(_row(fabric, principal), status_code=201)


async def list_all(request: Request) -> Response:
    """Everybody who can sign in, without secrets."""
    fabric = fabric_of(request)
    return JSONResponse({"value": [_row(fabric, p) for p in directory.principals(fabric.state)]})


def _row(fabric: Fabric, principal: Principal) -> dict[str, Any]:
    return {
        "client_id": principal.client_id,
        "object_id": principal.object_id,
        "name": principal.name,
        "resource_id": principal.resource_id,
        "environment": managed.reachable(fabric, principal),
    }
