"""/v1/fine_tuning/jobs: create, get, cancel, pause, resume."""

import hashlib
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Header, Query, Request, Response

from contract.job import JobPatch, JobRequest
from service.api.deps import Now, Parts, PartsDep, Reader, Writer
from service.api.examples import JOB_REQUESTS
from service.api.http import streams, waiting
from service.api.http.rate_limits import WorkKind
from service.api.http.requests import JsonRoute
from service.api.jobs import job_requests, job_views, submissions
from service.api.planning import plan_views
from service.api.schemas.jobs import Job
from service.api.schemas.plans import JobPlan, OfferedPlan
from service.db.jobs import job_facts
from service.db.jobs.job_facts import JobOverview
from service.db.projects.keys import Caller
from service.domain.planning.plan_limits import PlanLimits
from service.operations.jobs import jobs
from service.operations.jobs.jobs import RequestIdentity
from service.operations.storage import tiers

router = APIRouter(prefix="/fine_tuning/jobs", tags=["Fine-tuning"], route_class=JsonRoute)
_NOT_MODIFIED: dict[int | str, dict[str, Any]] = {
    304: {"description": "If-None-Match names this version.", "content": {}}
}
JobBody = Annotated[JobRequest, Body(openapi_examples=JOB_REQUESTS)]


@router.post("", operation_id="createFineTuningJob", response_model=Job | JobPlan)
async def create(
    request: Request,
    parts: PartsDep,
    caller: Writer,
    body: JobBody,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=255)] = None,
    x_stainless_retry_count: Annotated[int, Header(include_in_schema=False)] = 0,
    *,
    dry_run: Annotated[bool, Query(description="Return the plan and create nothing.")] = False,
) -> Job | JobPlan:
    """Plan the job, refuse what cannot work, and create it; with `dry_run` only plan."""
    now = parts.now()
    identity = RequestIdentity(
        caller=caller,
        body_sha256=hashlib.sha256(await request.body()).hexdigest(),
        idempotency_key=idempotency_key,
        is_retry=x_stainless_retry_count > 0,
    )
    if dry_run:
        submission = await submissions.plan_submission(parts, identity, body)
        plan = plan_views.judged_plan(
            submission.plan, PlanLimits.of(submission.terms, parts.allowance, now)
        )
        return JobPlan(model=submission.model, plan=OfferedPlan(**plan))
    created = await submissions.create_job(parts, identity, body, now)
    if created.is_new:
        return _job_answer(parts, job_facts.new_overview(created.job), now)
    return await _find_job(parts, caller, created.job.id)


@router.get(
    "/{job_id}",
    operation_id="retrieveFineTuningJob",
    response_model=Job,
    responses=_NOT_MODIFIED,
)
async def get(
    response: Response,
    parts: PartsDep,
    caller: Reader,
    job_id: str,
    known_versions: Annotated[waiting.KnownVersions, Depends(waiting.read_known_versions)],
) -> Job | Response:
    """Return one job with progress, cost and attempts; with `wait`, once it has changed."""
    if known_versions.waits:
        with parts.concurrency.slot(WorkKind.POLL, caller.project_id):
            await waiting.wait_for_change(parts, job_id, caller.project_id, known_versions)
    job = await _find_job(parts, caller, job_id)
    tag = {"etag": waiting.etag(job.version)}
    if not known_versions.waits and known_versions.contains(job.version):
        return Response(status_code=304, headers=tag)
    response.headers.update(tag)
    return job


@router.get(
    "/{job_id}/stream",
    operation_id="streamFineTuningJob",
    response_class=Response,
    responses=streams.STREAM,
)
async def stream(request: Request, parts: PartsDep, caller: Reader, job_id: str) -> Response:
    """Stream the job now and after each change, until it is over."""
    shared: streams.SharedReads = request.app.state.shared_reads
    job, find = await _find_job(parts, caller, job_id), partial(_find_job, parts, caller, job_id)
    return streams.stream_response(
        parts, caller, streams.stream_job(parts, shared, caller.project_id, job, find)
    )


@router.patch("/{job_id}", operation_id="updateFineTuningJob")
async def change(parts: PartsDep, caller: Writer, now: Now, job_id: str, patch: JobPatch) -> Job:
    """Change budget, deadline, price limit or regions; a job that they stopped continues."""
    if "budget" in patch.infrastructure.model_fields_set:
        await tiers.check_paid_resume(parts.reading, parts.storage, caller.project_id, job_id)
    async with parts.engine.begin() as conn:
        job = await jobs.get_locked(conn, caller.project_id, job_id)
        before = job.constraints
        terms = job_requests.apply_terms(before, patch.infrastructure)
        metadata, allowance = job_requests.new_metadata(patch), parts.allowance
        await jobs.change(conn, caller, job, terms, now, metadata=metadata, allowance=allowance)
        overview = await jobs.get_with_facts(conn, caller.project_id, job_id, now)
    return await _with_forecasts(parts, overview, now)


@router.post("/{job_id}/cancel", operation_id="cancelFineTuningJob")
async def cancel(parts: PartsDep, caller: Writer, job_id: str) -> Job:
    """Cancel the job: its nodes stop and its machines are deleted."""
    return await _request_change(parts, caller, job_id, jobs.request_cancel)


@router.post("/{job_id}/pause", operation_id="pauseFineTuningJob")
async def pause(parts: PartsDep, caller: Writer, job_id: str) -> Job:
    """Save a checkpoint and release the machines."""
    return await _request_change(parts, caller, job_id, jobs.request_pause)


@router.post("/{job_id}/resume", operation_id="resumeFineTuningJob")
async def resume(parts: PartsDep, caller: Writer, job_id: str) -> Job:
    """Continue a paused job from its newest checkpoint."""
    await tiers.require_readable_checkpoint(parts.reading, parts.storage, caller.project_id, job_id)
    return await _request_change(parts, caller, job_id, jobs.request_resume)


async def _request_change(
    parts: Parts, caller: Caller, job_id: str, request: Callable[..., Awaitable[JobOverview]]
) -> Job:
    now = parts.now()
    async with parts.engine.begin() as conn:
        overview = await request(conn, caller, job_id, now)
    return await _with_forecasts(parts, overview, now)


async def _find_job(parts: Parts, caller: Caller, job_id: str) -> Job:
    now = parts.now()
    async with parts.reading.connect() as conn:
        overview = await jobs.get_with_facts(conn, caller.project_id, job_id, now)
    return await _with_forecasts(parts, overview, now)


async def _with_forecasts(parts: Parts, overview: JobOverview, now: datetime) -> Job:
    """Return the job with forecasts; reads prices, so no transaction may be open."""
    return _job_answer(parts, await parts.waits.add_forecasts(overview, now), now)


def _job_answer(parts: Parts, overview: JobOverview, now: datetime) -> Job:
    return job_views.job_detail(overview, now, parts.plan_defaults.accelerator)
