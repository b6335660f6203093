"""/v1/fine_tuning/plans: cost and duration of a job before it is created."""

from typing import Annotated

from fastapi import APIRouter, Body

from contract.job import JobRequest
from service.api.deps import Now, PartsDep, Reader, Writer
from service.api.examples import JOB_REQUESTS
from service.api.http.requests import JsonRoute
from service.api.jobs import submissions
from service.api.planning import plan_views
from service.api.schemas.plans import StoredPlan
from service.db.jobs import plans as rows
from service.operations.jobs import plans
from service.operations.jobs.jobs import RequestIdentity

router = APIRouter(prefix="/fine_tuning/plans", tags=["Plans"], route_class=JsonRoute)
JobBody = Annotated[JobRequest, Body(openapi_examples=JOB_REQUESTS)]


@router.post("", operation_id="createFineTuningPlan")
async def create(parts: PartsDep, caller: Writer, now: Now, body: JobBody) -> StoredPlan:
    """Plan a job without creating it. To create it as planned, send the same body and `plan`."""
    identity = RequestIdentity(caller=caller, body_sha256="", idempotency_key=None, is_retry=False)
    submission = await submissions.plan_submission(parts, identity, body)
    row = plans.plan_row(submission, now)
    async with parts.engine.begin() as conn:
        await rows.add(conn, row)
    return plan_views.stored_plan(row, parts.allowance, now)


@router.get("/{plan_id}", operation_id="retrieveFineTuningPlan")
async def get(parts: PartsDep, caller: Reader, now: Now, plan_id: str) -> StoredPlan:
    """Return a stored plan; a job can be created from it until `expires_at`."""
    async with parts.reading.connect() as conn:
        row = await plans.get(conn, caller.project_id, plan_id)
    return plan_views.stored_plan(row, parts.allowance, now)
