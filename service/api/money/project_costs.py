"""/v1/organization/costs: the cost and savings of the key's project by day, in OpenAI's shape."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Literal

from fastapi import APIRouter, Query

from service.api.deps import Db, Now, Reader
from service.api.jobs.job_views import money
from service.api.schemas.organization import Amount, CostBucket, CostResult, Costs, LineItem
from service.db.money import project_costs
from service.db.money.project_costs import CostBucketRow
from service.domain.errors import InvalidRequest
from service.domain.money.cost import CURRENCY

router = APIRouter(prefix="/organization", tags=["Organization"])
_WIDTHS = {"1h": 3600, "1d": 86_400}
_MAX_BUCKETS = 180
_MAX_TIME = 4_102_444_800
_DEFAULT_SPAN = timedelta(days=7)
Seconds = Annotated[int | None, Query(ge=0, le=_MAX_TIME, description="unix seconds")]

Days = Annotated[
    int | None, Query(ge=1, le=_MAX_BUCKETS, description="instead of start_time: whole days")
]


@router.get("/costs", operation_id="usage-costs")
async def get_costs(
    db: Db,
    caller: Reader,
    now: Now,
    start_time: Seconds = None,
    end_time: Seconds = None,
    days: Days = None,
    bucket_width: Literal["1h", "1d"] = "1d",
) -> Costs:
    """List costs by time, by default of seven days; ``saved`` compares with on demand."""
    width = _WIDTHS[bucket_width]
    until = now if end_time is None else datetime.fromtimestamp(end_time, UTC)
    since = until - _DEFAULT_SPAN if start_time is None else datetime.fromtimestamp(start_time, UTC)
    if days is not None:
        if start_time is not None:
            raise InvalidRequest("Give days or start_time, not both.", param="days")
        since = _midnight(until) - timedelta(days=days - 1)
    if not since < until:
        raise InvalidRequest("start_time must lie before end_time.", param="start_time")
    if (until - since).total_seconds() > _MAX_BUCKETS * width:
        raise InvalidRequest(
            f"These are more than {_MAX_BUCKETS} buckets of {bucket_width}: ask for less time"
            f"{' or for bucket_width=1d' if width < _WIDTHS['1d'] else ''}.",
            param="start_time" if days is None else "days",
        )
    buckets = await project_costs.by_bucket(db, caller.project_id, since, until, width, now)
    zero = Decimal(0)
    machines = sum((b.machines for b in buckets), zero)
    on_demand = sum((b.on_demand for b in buckets), zero)
    return Costs(
        data=[_bucket(b, caller.project_id) for b in buckets],
        total=money(machines + sum((b.storage for b in buckets), zero)),
        on_demand_equivalent=money(on_demand),
        saved=money(on_demand - machines),
        saved_percent=round(float(100 * (1 - machines / on_demand)), 1) if on_demand else 0.0,
        currency="USD",
    )


def _midnight(at: datetime) -> datetime:
    """Return the beginning of the day (UTC)."""
    return at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def _bucket(bucket: CostBucketRow, project_id: str) -> CostBucket:
    lines: dict[LineItem, Decimal] = {"machines": bucket.machines, "storage": bucket.storage}
    results = [
        CostResult(
            amount=Amount(value=float(round(value, 4)), currency=CURRENCY.lower()),
            line_item=name,
            project_id=project_id,
        )
        for name, value in lines.items()
        if value
    ]
    return CostBucket(
        start_time=int(bucket.starts.timestamp()),
        end_time=int(bucket.ends.timestamp()),
        results=results,
        on_demand_equivalent=money(bucket.on_demand),
        saved=money(bucket.on_demand - bucket.machines),
    )
