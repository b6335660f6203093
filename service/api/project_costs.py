"""/v1/organization/costs: what the key's project has cost by day, and saved. OpenAI's shape."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query

from service.api.deps import CallerDep, Db, Now
from service.api.job_views import money
from service.db import project_costs
from service.db.project_costs import Bucket
from service.domain.cost import CURRENCY
from service.domain.errors import InvalidRequest

router = APIRouter(prefix="/organization", tags=["organization"])
_WIDTHS = {"1h": 3600, "1d": 86_400}
_MOST = 180  # buckets
_LATEST = 4_102_444_800
_USUAL = timedelta(days=7)
Seconds = Annotated[int | None, Query(ge=0, le=_LATEST, description="unix seconds")]


@router.get("/costs")
async def get_costs(
    db: Db,
    caller: CallerDep,
    now: Now,
    start_time: Seconds = None,
    end_time: Seconds = None,
    bucket_width: Literal["1h", "1d"] = "1d",
) -> dict[str, Any]:
    """The last seven days if nothing is told; ``saved`` is against the same hours on demand."""
    width = _WIDTHS[bucket_width]
    until = now if end_time is None else datetime.fromtimestamp(end_time, UTC)
    since = until - _USUAL if start_time is None else datetime.fromtimestamp(start_time, UTC)
    if not since < until or (until - since).total_seconds() > _MOST * width:
        raise InvalidRequest(
            f"Ask for at least a moment and at most {_MOST} buckets of {bucket_width}: "
            "start_time lies before end_time.",
            param="start_time",
        )
    found = await project_costs.by_bucket(db, caller.project_id, since, until, width, now)
    zero = Decimal(0)
    machines = sum((b.machines for b in found), zero)
    on_demand = sum((b.on_demand for b in found), zero)
    return {
        "object": "page",
        "data": [_bucket(b, caller.project_id) for b in found],
        "has_more": False,
        "next_page": None,
        "total": money(machines + sum((b.storage for b in found), zero)),
        "on_demand_equivalent": money(on_demand),
        "saved": money(on_demand - machines),
        "saved_percent": round(float(100 * (1 - machines / on_demand)), 1) if on_demand else 0.0,
        "currency": CURRENCY,
    }


def _bucket(bucket: Bucket, project_id: str) -> dict[str, Any]:
    lines = {"machines": bucket.machines, "storage": bucket.storage}
    return {
        "object": "bucket",
        "start_time": int(bucket.starts.timestamp()),
        "end_time": int(bucket.ends.timestamp()),
        "results": [
            {
                "object": "organization.costs.result",
                "amount": {"value": float(round(value, 4)), "currency": CURRENCY.lower()},
                "line_item": name,
                "project_id": project_id,
            }
            for name, value in lines.items()
            if value
        ],
        "on_demand_equivalent": money(bucket.on_demand),
        "saved": money(bucket.on_demand - bucket.machines),
    }
