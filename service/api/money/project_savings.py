"""/v1/organization/costs/projects: the cost and savings of each project. For operators."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query

from service.api.deps import Db, Now, Operator, PartsDep
from service.api.http.pages import After, clamp_limit, page, require_known_cursor
from service.api.jobs.job_views import money, seconds
from service.api.schemas.organization import ProjectSavings, ProjectSavingsList, Savings
from service.db.money import project_savings
from service.db.money.project_savings import SavingsRow
from service.domain.errors import InvalidRequest
from service.domain.money.billing_reconciliation import start_of_day
from service.domain.money.cost import CURRENCY

router = APIRouter(prefix="/organization", tags=["Organization"])
_MAX_LIMIT = 100
Days = Annotated[int, Query(ge=1, le=400, description="whole days (UTC), today the last")]
Until = Annotated[int | None, Query(ge=0, description="`until` of the first page; with `after`")]


@router.get("/costs/projects", operation_id="listProjectSavings")
async def list_savings(
    parts: PartsDep,
    db: Db,
    caller: Operator,
    now: Now,
    days: Days = 30,
    limit: int = 20,
    after: After = None,
    until: Until = None,
) -> ProjectSavingsList:
    """List the cost of machines by project, highest first; ``whole`` is of all projects."""
    now = _common_end(until, after, now)
    since = start_of_day(now.date()) - timedelta(days=days - 1)
    limit = clamp_limit(limit, _MAX_LIMIT)
    savings = await project_savings.by_project(db, since, now, after=after, limit=limit + 1)
    rows = require_known_cursor(None if savings is None else savings.page, after)
    assert savings is not None, "an unknown cursor is refused"
    return page(
        ProjectSavingsList,
        rows,
        limit,
        lambda row: ProjectSavings(id=row.id, name=row.name, **_savings(row)),
        since=seconds(since),
        until=seconds(now),
        currency=CURRENCY,
        projects=savings.projects,
        whole=Savings(**_savings(savings.total)),
    )


def _common_end(until: int | None, after: str | None, now: datetime) -> datetime:
    """Return the common end of all pages, in whole seconds: new costs would change the order."""
    if until is None and after is not None:
        raise InvalidRequest("Send `until` of the first page together with `after`.", param="until")
    if until is not None and until > seconds(now):
        raise InvalidRequest(f"until={until} is in the future.", param="until")
    return datetime.fromtimestamp(seconds(now) if until is None else until, UTC)


def _savings(row: SavingsRow) -> dict[str, Any]:
    savings = row.on_demand - row.spent
    return {
        "jobs": row.jobs,
        "evictions": row.evictions,
        "spent": money(row.spent),
        "on_demand_equivalent": money(row.on_demand),
        "saved": money(savings),
        "saved_percent": round(float(100 * savings / row.on_demand), 1) if row.on_demand else 0.0,
    }
