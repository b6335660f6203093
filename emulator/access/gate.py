"""What every ARM request passes before anything looks at it: who are you, and may you do this."""

import re
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.types import Message, Receive, Scope

from emulator.access import enforcement
from emulator.access.enforcement import ArmCaller
from emulator.access.identity import tokens
from emulator.fabric import Fabric

HISTORY = "/history/v1.0"  # before the path of a workspace: its runs


def admit(fabric: Fabric, request: Request) -> None:
    """Write the caller into the request's scope, or raise ArmError 401 or 403.

    ``scope["principal"]`` is the client id, for the log; ``scope["caller"]`` is for decisions.
    """
    host = request.url.hostname or ""
    claims = tokens.check(fabric, request.headers.get("authorization", ""), host)
    caller = ArmCaller(str(claims["appid"]), str(claims["oid"]))
    request.scope["principal"], request.scope["caller"] = caller.client_id, caller
    if fabric.settings.access == "enforced":
        path = re.sub(f"^{HISTORY}", "", request.url.path, flags=re.IGNORECASE)
        sees = enforcement.check(fabric, caller, request.method, path)
        request.scope["sees"] = sees


def visible_rows(request: Request, rows: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """Return the rows of a list that the caller may see."""
    sees = request.scope.get("sees")
    return rows if sees is None else [row for row in rows if sees(row["id"])]


def watched(fabric: Fabric, scope: Scope, receive: Receive) -> Receive:
    """Wrap the body; raise ArmError 403 if it names resources that the caller may not use."""
    caller, enforced = scope.get("caller"), fabric.settings.access == "enforced"
    if caller is None or not enforced or scope["method"] not in ("PUT", "PATCH"):
        return receive
    so_far = bytearray()

    async def watch() -> Message:
        message = await receive()
        if message["type"] == "http.request":
            so_far.extend(message.get("body", b""))
            if not message.get("more_body"):
                path, body = scope["path"], bytes(so_far)
                enforcement.check_links(fabric, caller, scope["method"], path, body)
        return message

    return watch
