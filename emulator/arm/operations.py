"""Long operations: how they are accepted and how both polling addresses answer."""

import uuid
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.arm.front_door import base_url, fabric_of
from emulator.arm.views import scale_set_body
from emulator.core.errors import PREEMPTED, ArmError
from emulator.core.state import OperationRow, ResourceGroup, ResourceRow, ScaleSetRow
from emulator.core.timestamps import timestamp
from emulator.fabric import Fabric

RETRY_AFTER = {"Retry-After": "1"}


def begin_operation(
    fabric: Fabric,
    kind: str,
    target: ResourceGroup | ScaleSetRow | ResourceRow,
    *,
    seconds: float,
    location: str = "",
    instance_ids: tuple[str, ...] = (),
    alone: bool = False,
) -> OperationRow:
    """Open an operation that is carried out ``seconds`` from now; ``location``: its own."""
    now = fabric.now()
    operation = OperationRow(
        id=str(uuid.uuid4()),
        kind=kind,
        subscription=target.subscription,
        location=location or target.location,
        target=target.key,
        accepted_at=now,
        due_at=now + seconds,
        instance_ids=list(instance_ids),
        alone=alone,
    )
    return fabric.state.put(operation)


def preempt(fabric: Fabric, target: str, *kinds: str) -> float | None:
    """Cancel the unfinished operations of these kinds; return when the last was due."""
    due = None
    for operation in [o for kind in kinds for o in fabric.operations(target, kind)]:
        fabric.state.end(operation, fabric.now(), PREEMPTED, "Canceled")
        due = operation.due_at
    return due


def headers(request: Request, operation: OperationRow) -> dict[str, str]:
    """Return the addresses at which to poll an operation."""
    prefix = f"{base_url(request)}/subscriptions/{operation.subscription}"
    version = request.query_params["api-version"]
    if operation.kind == "delete_group":
        location = f"{prefix}/operationresults/{operation.id}?api-version={version}"
        return {"Location": location} | RETRY_AFTER
    path = f"providers/Microsoft.Compute/locations/{operation.location}/operations/{operation.id}"
    url = f"{prefix}/{path}?p={operation.kind}&api-version={version}"
    return {"Azure-AsyncOperation": url, "Location": f"{url}&monitor=true"} | RETRY_AFTER


async def poll(request: Request) -> Response:
    """GET on the Azure-AsyncOperation address, or with monitor=true on the Location."""
    operation = find_operation(request)
    if request.query_params.get("monitor", "").lower() == "true":
        return _result(request, operation)
    extra = RETRY_AFTER if operation.status == "InProgress" else None
    return JSONResponse(_status(operation), headers=extra)


async def result(request: Request) -> Response:
    """GET on the Location of a resource group's deletion."""
    return _result(request, find_operation(request))


def find_operation(request: Request) -> OperationRow:
    """Return the operation that the path names, or raise ArmError."""
    name = request.path_params["operation"]
    if (operation := fabric_of(request).state.operations.get(name.lower())) is None:
        raise ArmError(404, "NotFound", f"The operation '{name}' was not found; it may be over.")
    return operation


def _status(operation: OperationRow) -> dict[str, Any]:
    started, ended = timestamp(operation.accepted_at), operation.ended_at
    body: dict[str, Any] = {"name": operation.id, "startTime": started, "status": operation.status}
    if ended is not None:
        body["endTime"] = timestamp(ended)
    if operation.error:
        body["error"] = operation.error
    return body


def _result(request: Request, operation: OperationRow) -> Response:
    if operation.status == "InProgress":
        return Response(status_code=202, headers=headers(request, operation))
    if operation.error:
        return JSONResponse({"error": operation.error}, status_code=409)
    target = fabric_of(request).state.scale_sets.get(operation.target)
    if operation.kind == "put" and target:
        return JSONResponse(scale_set_body(target))
    return Response(status_code=200)  # clients in JavaScript take no 204 for the end of a POST
