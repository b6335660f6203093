"""The Instance Metadata Service, one behind each VM's own address /vm/TOKEN."""

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from emulator.arm.front_door import fabric_of, read_json
from emulator.compute import evictions
from emulator.core.errors import ArmError
from emulator.core.state import InstanceRow, ScaleSetRow
from emulator.fabric import Fabric
from emulator.faults import planted
from emulator.faults.planted import FaultTarget
from emulator.machines import instance_document, maintenance
from emulator.machines.pull_refusals import refusal_message

VERSIONS = (
    *("2017-03-01", "2017-04-02", "2017-08-01", "2017-10-01", "2017-12-01", "2018-02-01"),
    *("2018-04-02", "2018-10-01", "2019-02-01", "2019-03-11", "2019-04-30", "2019-06-01"),
    *("2019-06-04", "2019-08-01", "2019-08-15", "2019-11-01", "2020-06-01", "2020-07-15"),
    *("2020-09-01", "2020-10-01", "2020-12-01", "2021-01-01", "2021-02-01", "2021-03-01"),
    *("2021-05-01", "2021-08-01", "2021-10-01", "2021-11-01", "2021-11-15", "2021-12-13"),
    *("2023-07-01", "2023-11-15", "2024-03-15", "2024-07-17", "2025-04-07"),
)
EVENT_VERSIONS = (
    *("2017-08-01", "2017-11-01", "2019-01-01", "2019-04-01", "2019-08-01", "2020-07-01"),
)
SINCE = {
    "Description": "2019-04-01",
    "EventSource": "2019-08-01",
    "DurationInSeconds": "2020-07-01",
}
DAY, HOUR = 86400.0, 3600.0
MOST_PER_SECOND = 5
POLL_SECONDS = 0.02


class MetadataRefusal(ArmError):
    """An answer of status 400 or more as this service words it."""

    def __init__(self, status: int, message: str, **details: object) -> None:
        super().__init__(status, "", message)
        self._details = details

    @property
    def body(self) -> dict[str, Any]:
        """The error as JSON travels."""
        return {"error": self.message, **self._details}


async def versions(request: Request) -> Response:
    """Which api-versions there are; the one question that needs none."""
    _check_headers(request)
    _calling_vm(request)
    return JSONResponse({"apiVersions": list(VERSIONS)})


async def instance(request: Request) -> Response:
    """Return the identity of this VM, or the part of it that the path names."""
    _check(request, VERSIONS)
    document: Any = instance_document.document(*_calling_vm(request))
    for segment in str(request.path_params.get("path", "")).strip("/").split("/"):
        document = _inside(document, segment) if segment else document
    match request.query_params.get("format", "json"):
        case "text":
            return PlainTextResponse(_as_text(document))
        case "json" if isinstance(document, dict | list):
            return JSONResponse(document)
        case _:
            raise MetadataRefusal(400, "Bad request. A leaf is to be had with format=text only.")


async def scheduled_events(request: Request) -> Response:
    """Show the Scheduled Events of this VM."""
    version = _check(request, EVENT_VERSIONS)
    scale_set, vm = _calling_vm(request)
    vm = await _until_enabled(fabric_of(request), vm)
    document = evictions.document(scale_set, vm)
    name = scale_set.vm_name(vm)
    rows = [*document["Events"], *(event.row(name) for event in maintenance.events(vm))]
    visible = [row for row in rows if row["EventType"] != "Preempt" or version >= "2017-11-01"]
    document["Events"] = [
        {k: v for k, v in row.items() if SINCE.get(k, "") <= version} for row in visible
    ]
    return JSONResponse(document)


async def pull(request: Request) -> Response:
    """Nothing of Azure's: the VM's docker asks what is to go wrong with the pull of an image."""
    fabric, token = fabric_of(request), request.path_params["token"]
    image, machine = request.query_params.get("image", ""), fabric.by_token(token)
    if machine is None:
        raise MetadataRefusal(404, "This VM is gone.")
    scale_set = machine[0]
    target = FaultTarget(
        method="PULL",
        path=f"{scale_set.id}/{image}",
        region=scale_set.location,
        vm_size=scale_set.vm_size,
    )
    fault = planted.take_fault(fabric.state, planted.PULLS, target, fabric.now())
    if fault is None:
        return Response(status_code=204)
    fabric.changed()
    return PlainTextResponse(fault.message or refusal_message(fault.code, image))


async def start_requests(request: Request) -> Response:
    """Start events now, as the VM agrees to them."""
    fabric = fabric_of(request)
    _check(request, EVENT_VERSIONS)
    requests = (await read_json(request)).get("StartRequests")
    _, vm = _calling_vm(request)  # as it is once the body has come
    if (
        not isinstance(requests, list)
        or not all(isinstance(r, dict) for r in requests)
        or not requests
    ):
        raise MetadataRefusal(400, "StartRequests must be a list of objects with an EventId.")
    ids = [str(r.get("EventId", "")) for r in requests]
    agreed = [
        evictions.acknowledge(fabric.state, vm, i) or maintenance.acknowledge(fabric.state, vm, i)
        for i in ids
    ]
    if not all(agreed):
        raise MetadataRefusal(400, "There is no event with this EventId.")
    fabric.changed()
    return Response()


def _calling_vm(request: Request) -> tuple[ScaleSetRow, InstanceRow]:
    fabric: Fabric = fabric_of(request)
    token = request.path_params["token"]
    machine = fabric.by_token(token)
    if machine is None:
        raise MetadataRefusal(404, "This VM is gone.")
    if fabric.settings.throttling == "azure":
        _count(request, token, fabric.now())
    return machine


def _count(request: Request, token: str, now: float) -> None:
    """Refuse the sixth request within a second."""
    recent: dict[str, list[float]] = request.app.state.__dict__.setdefault("metadata_calls", {})
    recent[token] = [at for at in recent.get(token, ()) if now - at < 1.0]
    if len(recent[token]) >= MOST_PER_SECOND:
        raise MetadataRefusal(429, "Too many requests")
    recent[token].append(now)


def _check(request: Request, versions: tuple[str, ...]) -> str:
    """Return the api-version; raise MetadataRefusal if the request lacks what all need."""
    _check_headers(request)
    names = [name for name, _ in request.query_params.multi_items()]
    if len(names) != len(set(names)):
        raise MetadataRefusal(400, "Bad request. Duplicate query parameters are not allowed.")
    version = request.query_params.get("api-version", "")
    if version not in versions:
        raise MetadataRefusal(
            400,
            "Bad request. api-version is invalid or was not specified in the request. "
            "For more information refer to aka.ms/azureimds",
            **{"newest-versions": list(reversed(versions[-3:]))},
        )
    return version


def _check_headers(request: Request) -> None:
    if request.headers.get("metadata", "").lower() != "true":
        raise MetadataRefusal(400, "Bad request. Required metadata header not specified")
    if "x-forwarded-for" in request.headers:
        raise MetadataRefusal(400, "Bad request. The X-Forwarded-For header is not allowed")


def _inside(document: Any, segment: str) -> Any:  # noqa: ANN401 - parsed JSON
    if isinstance(document, dict):
        by_name = {name.lower(): value for name, value in document.items()}
        if segment.lower() in by_name:
            return by_name[segment.lower()]
    if isinstance(document, list) and segment.isdigit() and int(segment) < len(document):
        return document[int(segment)]
    raise MetadataRefusal(404, "Not found")


def _as_text(document: Any) -> str:  # noqa: ANN401 - parsed JSON
    """Return a leaf as text, or the names of the members; "/" follows those with members."""
    if not isinstance(document, dict | list):
        return str(document)
    rows = document.items() if isinstance(document, dict) else enumerate(document)
    return "\n".join(f"{name}/" if isinstance(v, dict | list) else f"{name}" for name, v in rows)


async def _until_enabled(fabric: Fabric, vm: InstanceRow) -> InstanceRow:
    """Wait until Scheduled Events are on: the first request in a day enables them, slowly."""
    now = fabric.now()
    if not vm.events_asked_at or now - vm.events_asked_at > DAY:
        on_at = now + fabric.settings.first_events_call_seconds
        vm = fabric.state.change(vm, events_on_at=on_at)
    if now - vm.events_asked_at > HOUR:  # by the hour is enough, and spares the disk
        vm = fabric.state.change(vm, events_asked_at=now)
        fabric.changed()
    while True:  # our time may be faster than the loop's
        if fabric.now() >= vm.events_on_at:
            current = fabric.by_token(vm.token)
            return current[1] if current else vm
        await asyncio.sleep(POLL_SECONDS)
