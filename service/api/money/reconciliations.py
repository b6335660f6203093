"""/v1/organization/costs/reconciliation: the ledger compared with Azure's bill."""

from datetime import UTC, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query

from service.api.deps import Db, Now, PartsDep, Reader
from service.api.http.pages import After, clamp_limit, require_known_cursor
from service.api.jobs.job_views import money, seconds
from service.api.schemas import organization as schemas
from service.db.money import bills
from service.db.money.bills import BillReadState
from service.domain.money.billing_reconciliation import (
    UNTAGGED,
    BilledDay,
    BillReconciliation,
    ReconciliationLine,
    complete_period,
    reconcile,
)
from service.domain.money.cost import CURRENCY
from service.operations.projects import operators

router = APIRouter(prefix="/organization", tags=["Organization"])
_MAX_LIMIT = 100  # attempts of a page
Days = Annotated[int, Query(ge=1, le=90, description="whole days (UTC), today the last")]


@router.get("/costs/reconciliation", operation_id="reconcileCosts")
async def get_reconciliation(
    parts: PartsDep,
    db: Db,
    caller: Reader,
    now: Now,
    days: Days = 7,
    limit: int = 20,
    after: After = None,
) -> schemas.Reconciliation:
    """Compare the project's ledger with Azure's bill; ``differences`` sum up to ``difference``."""
    until = now.astimezone(UTC).date()
    since = until - timedelta(days=days - 1)
    metered = await bills.metered(db, caller.project_id, since, until, now)
    billed = await bills.of_project(db, caller.project_id, since, until)
    read_state = await bills.read_state(db)
    sees_all = await operators.is_operator(db, caller, parts.operator_project)
    unassigned = await bills.unattributed(db, since, until) if sees_all else []
    reconciliation = reconcile(
        metered, billed, complete_period(read_state.told_at, read_state.first_day)
    )
    members = {
        "since": since.isoformat(),
        "until": until.isoformat(),
        "told_at": seconds(read_state.told_at),
        "told_since": None
        if reconciliation.period is None
        else reconciliation.period.since.isoformat(),
        "told_until": None
        if reconciliation.period is None
        else reconciliation.period.until.isoformat(),
        "trouble": _billing_trouble(read_state, sees_all=sees_all),
        "currency": CURRENCY,
        "whole": _line(reconciliation.total),
        "of_nobody": [_unassigned_cost(day) for day in unassigned],
        **_page(reconciliation, clamp_limit(limit, _MAX_LIMIT), after),
    }
    return schemas.Reconciliation(**members)


def _page(reconciliation: BillReconciliation, limit: int, after: str | None) -> dict[str, Any]:
    """Return the attempts with the largest differences first."""
    lines = sorted(
        reconciliation.attempts.items(), key=lambda i: (-abs(i[1].billed - i[1].metered), i[0])
    )
    if after is not None:
        names = [name for name, _ in lines]
        require_known_cursor(names if after in names else None, after)
        lines = lines[names.index(after) + 1 :]
    items = [{"id": name} | _line(line) for name, line in lines[:limit]]
    return {"attempts": items, "has_more": len(lines) > limit}


def _billing_trouble(read_state: BillReadState, *, sees_all: bool) -> dict[str, Any] | None:
    """Return why Azure's bill could not be read; Azure's words are for operators only."""
    if not read_state.trouble or read_state.trouble_at is None:
        return None
    public = "Azure's bill could not be read. Operators of the service see the reason."
    return {
        "at": seconds(read_state.trouble_at),
        "message": read_state.trouble if sees_all else public,
    }


def _unassigned_cost(day: BilledDay) -> dict[str, Any]:
    """Return a cost that no project is charged with; for operators only."""
    untagged = day.attempt_id == UNTAGGED
    reason = (
        "A resource without Rekindle's tags in the deployment's resource group."
        if untagged
        else "Its tag names an unknown attempt."
    )
    cause = "untagged" if untagged else "unknown_attempt"
    return {"cause": cause, "category": day.category, "billed": money(day.amount), "why": reason}


def _line(line: ReconciliationLine) -> dict[str, Any]:
    return {
        "metered": money(line.metered),
        "billed": money(line.billed),
        "difference": money(line.billed - line.metered),
        "differences": [
            {"cause": d.cause, "amount": money(d.amount), "why": d.why} for d in line.differences
        ],
    }
