"""Stored plans: kept for a day, and used when a job is created."""

import json
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from contract.job import JobRequest
from service.db.jobs import plans
from service.db.jobs.plans import PlanRow
from service.domain.errors import InvalidRequest, PlanNotFound
from service.domain.ids import new_id
from service.domain.planning import suggestions
from service.operations.jobs.jobs import Submission

LIFETIME = timedelta(days=1)  # prices of Spot capacity move about once a day
# Members of a job's request that a plan does not depend on.
_TERMS_OUTSIDE_PLAN = {"plan", "seed", "metadata", "suffix"}


def plan_row(submission: Submission, now: datetime) -> PlanRow:
    """Return the row of a checked request's plan, with suggestions. Pure."""
    suggested = (
        suggestions.suggestions(submission.planned, submission.plan) if submission.planned else []
    )
    return PlanRow(
        id=new_id("plan", now),
        project_id=submission.identity.caller.project_id,
        created_at=now,
        expires_at=now + LIFETIME,
        model=submission.model,
        request=submission.request,
        plan=submission.plan.as_dict()
        | {"suggestions": [vars(suggestion) for suggestion in suggested]},
    )


async def get(conn: AsyncConnection, project_id: str, plan_id: str) -> PlanRow:
    """Return the plan, or raise PlanNotFound."""
    row = await plans.find(conn, project_id, plan_id)
    if row is None:
        raise PlanNotFound(f"No plan {plan_id:.80}. Create one: POST /v1/fine_tuning/plans.")
    return row


async def require_matching_plan(
    conn: AsyncConnection, project_id: str, request: dict[str, Any], now: datetime
) -> PlanRow:
    """Return the plan that a request for a job names, or raise InvalidRequest.

    The plan must be of the same request and not expired.
    """
    plan_id = request["plan"]
    row = await plans.find(conn, project_id, plan_id)
    hint = "Create one: POST /v1/fine_tuning/plans."
    if row is None:
        raise InvalidRequest(f"plan: no plan {plan_id:.80}. {hint}", param="plan")
    if now >= row.expires_at:
        expiry = f"{row.expires_at:%Y-%m-%d %H:%M} UTC"
        raise InvalidRequest(f"plan: {plan_id} expired at {expiry}. {hint}", param="plan")
    planned = JobRequest.model_validate_json(json.dumps(row.request)).model_dump(mode="json")
    for name in sorted(request.keys() - _TERMS_OUTSIDE_PLAN):
        if request[name] != planned[name]:
            raise InvalidRequest(
                f"{name}: differs from the request of {plan_id}. Send the planned value, or leave "
                "plan out to plan again.",
                param=name,
            )
    return row
