"""Microsoft.Quota: the quotas of Compute in one region, and requests for more of them."""

import uuid
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.errors import ArmError
from emulator.fabric import Fabric
from emulator.front_door import base_url, fabric_of, page, read_json
from emulator.market.state import QuotaRequest
from emulator.timestamps import timestamp
from emulator.usages import Quota, Region, quotas, used

LARGEST = 2**31 - 1
Parts = tuple[Fabric, Region, str]  # the quota's name is empty where all are meant


async def list_quotas(request: Request) -> Response:
    """Every quota of the region with its limit."""
    fabric, region, _ = _parts(request)
    return page(request, [_quota(fabric, region, quota) for quota in quotas(fabric, region)])


async def get_quota(request: Request) -> Response:
    """One quota."""
    fabric, region, name = _parts(request)
    return JSONResponse(_quota(fabric, region, _find(fabric, region, name)))


async def list_usages(request: Request) -> Response:
    """What is used of every quota."""
    fabric, region, _ = _parts(request)
    return page(request, [_usage(fabric, region, quota) for quota in quotas(fabric, region)])


async def get_usage(request: Request) -> Response:
    """What is used of one quota."""
    fabric, region, name = _parts(request)
    return JSONResponse(_usage(fabric, region, _find(fabric, region, name)))


async def put_quota(request: Request) -> Response:
    """Ask for another limit (PUT and PATCH): accepted now, decided a moment later."""
    fabric, region, name = _parts(request)
    quota, body = _find(fabric, region, name), await read_json(request)
    now = fabric.now()
    wish = QuotaRequest(
        id=str(uuid.uuid4()),
        subscription=region.subscription,
        location=region.location,
        name=quota.name,
        limit=_limit(body),
        submitted_at=now,
        due_at=now + fabric.settings.quota_seconds,
    )
    if wish.limit < used(fabric, region, quota):
        raise ArmError(
            400,
            "QuotaReductionNotSupported",
            f"The limit of {quota.name} cannot be lower than what is used of it.",
        )
    fabric.state.quota_requests[wish.id] = wish
    fabric.changed()
    return JSONResponse(_shown(wish), status_code=202, headers=_where(request, wish))


async def list_requests(request: Request) -> Response:
    """Every request for the region, the latest first."""
    fabric, region, _ = _parts(request)
    found = [r for r in fabric.state.quota_requests.values() if _region(r).key == region.key]
    return page(request, [_shown(r) for r in reversed(found)])


async def get_request(request: Request) -> Response:
    """How one request is doing; to whoever polls the Location, 202 until it is decided."""
    fabric, region, name = _parts(request)
    wish = fabric.state.quota_requests.get(name.lower())
    if wish is None or _region(wish).key != region.key:
        raise ArmError(404, "NotFound", f"There is no quota request '{name}' of this region.")
    polled = request.query_params.get("monitor", "").lower() == "true"
    if polled and wish.state == "InProgress":
        return JSONResponse(_shown(wish), status_code=202, headers=_where(request, wish))
    return JSONResponse(_shown(wish))


def decide(fabric: Fabric, now: float) -> bool:
    """A chore: grant or refuse the requests that are due."""
    due = [r for r in fabric.state.quota_requests.values() if _ripe(r, now)]
    for wish in due:
        if wish.limit > fabric.settings.quota_ceiling:
            wish.state, wish.code = "Failed", "ContactSupport"
            wish.message = f"A limit of {wish.limit} needs a support request."
            continue
        wish.state = "Succeeded"
        fabric.state.quotas[_region(wish).quota(wish.name)] = wish.limit
    return bool(due)


def _where(request: Request, wish: QuotaRequest) -> dict[str, str]:
    here = base_url(request) + _id(_region(wish), "quotaRequests", wish.id)
    version = request.query_params["api-version"]
    return {"Location": f"{here}?api-version={version}&monitor=true", "Retry-After": "1"}


def _ripe(wish: QuotaRequest, now: float) -> bool:
    return wish.state == "InProgress" and now >= wish.due_at


def _region(wish: QuotaRequest) -> Region:
    return Region(wish.subscription, wish.location)


def _parts(request: Request) -> Parts:
    names = request.path_params
    fabric, region = fabric_of(request), Region.of(names["subscription"], names["location"])
    return fabric, region, str(names.get("quota", ""))


def _find(fabric: Fabric, region: Region, name: str) -> Quota:
    found = next((q for q in quotas(fabric, region) if q.name.lower() == name.lower()), None)
    if found is None:
        message = f"The resource name '{name}' is not a quota of Microsoft.Compute."
        raise ArmError(400, "InvalidResourceName", message)
    return found


def _limit(body: dict[str, Any]) -> int:
    properties = body.get("properties")
    limit = properties.get("limit") if isinstance(properties, dict) else None
    value = limit.get("value") if isinstance(limit, dict) else None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= LARGEST:
        message = "properties.limit must be {limitObjectType: LimitValue, value: NUMBER}."
        raise ArmError(400, "InvalidQuotaRequest", message)
    return value


def _id(region: Region, kind: str, name: str) -> str:
    return f"{region.key}/providers/Microsoft.Quota/{kind}/{name}"


def _quota(fabric: Fabric, region: Region, quota: Quota) -> dict[str, Any]:
    limit = {"limitObjectType": "LimitValue", "limitType": "Independent", "value": quota.limit}
    return _resource(region, "quotas", quota, {"limit": limit})


def _usage(fabric: Fabric, region: Region, quota: Quota) -> dict[str, Any]:
    usages = {"usagesType": "Individual", "value": used(fabric, region, quota)}
    return _resource(region, "usages", quota, {"usages": usages})


def _resource(region: Region, kind: str, quota: Quota, more: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": _id(region, kind, quota.name),
        "name": quota.name,
        "type": f"Microsoft.Quota/{kind.capitalize()}",
        "properties": {
            **more,
            "unit": "Count",
            "name": {"value": quota.name, "localizedValue": quota.text},
            "resourceType": "lowPriority" if quota.name == "lowPriorityCores" else "dedicated",
            "isQuotaApplicable": True,
            "properties": {},
        },
    }


def _shown(wish: QuotaRequest) -> dict[str, Any]:
    error = {"error": {"code": wish.code, "message": wish.message}} if wish.code else {}
    part = {
        "subRequestId": wish.id,
        "limit": {"limitObjectType": "LimitValue", "value": wish.limit},
        "name": {"value": wish.name, "localizedValue": wish.name},
        "provisioningState": wish.state,
        "unit": "Count",
    }
    return {
        "id": _id(_region(wish), "quotaRequests", wish.id),
        "name": wish.id,
        "type": "Microsoft.Quota/quotaRequests",
        "properties": {
            "provisioningState": wish.state,
            "message": wish.message or f"Request {wish.state.lower()}.",
            "requestSubmitTime": timestamp(wish.submitted_at),
            "value": [part],
            **error,
        },
    }
