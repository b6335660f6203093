"""/v1/fine_tuning/jobs: create, list, get, cancel, pause, resume."""

import hashlib
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Request, Response
from pydantic_core import to_json

from service.api import (
    bodies,
    job_requests,
    job_views,
    plan_views,
    quick_routes,
    submissions,
    terms_requests,
    waiting,
)
from service.api.deps import CallerDep, Db, Now, Parts, PartsDep, parts_of
from service.api.pages import After, clamp, known, page
from service.api.terms_requests import JobPatch
from service.db import job_facts
from service.db import jobs as rows
from service.db.job_facts import Around
from service.db.keys import Caller
from service.domain.terms import Terms
from service.operations import jobs, tiers
from service.operations.jobs import Sending, Submission

router = APIRouter(prefix="/fine_tuning/jobs", tags=["fine-tuning"])
_MOST = 100
_LONGEST_BODY = 1024 * 1024


@quick_routes.post(router, "")
async def create(
    request: Request,
    caller: CallerDep,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=255)] = None,
    x_stainless_retry_count: Annotated[int, Header()] = 0,
    *,
    dry_run: bool = False,
) -> Response:
    """Plan the job, refuse what can never work, and take it on; with ``dry_run`` plan alone."""
    parts = parts_of(request)
    now, body = parts.now(), await bodies.read(request, _LONGEST_BODY)
    asked = job_requests.parse(body)
    sending = Sending(
        caller=caller,
        body_sha256=hashlib.sha256(body).hexdigest(),
        idempotency_key=idempotency_key,
        is_retry=x_stainless_retry_count > 0,
    )
    if dry_run:
        return _json(_planned(await submissions.planned(parts, sending, asked), now))
    sent = await submissions.submitted(parts, sending, asked, now)
    if sent.is_new:
        return _json(job_views.detailed(job_facts.of_new(sent.job), now))
    async with parts.looking.connect() as conn:
        around = await jobs.around(conn, caller.project_id, sent.job.id, now)
    return _json(await _shown(parts, around, now))


@router.get("")
async def list_jobs(
    request: Request,
    db: Db,
    caller: CallerDep,
    now: Now,
    limit: int = 20,
    after: After = None,
    metadata: str | None = None,  # known, and read below with its [key]
) -> dict[str, Any]:
    """Newest first; ``metadata[key]=value`` filters, ``metadata=null`` gives those without any."""
    if after is not None and await rows.find(db, after, caller.project_id) is None:
        known(None, after)
    limit = clamp(limit, _MOST)
    wanted = _metadata(request)
    found = await job_facts.page(
        db, caller.project_id, now, after=after, limit=limit + 1, metadata=wanted
    )
    return page(found, limit, job_views.listed)


@router.get("/{job_id}", responses={304: {"description": "If-None-Match names this version"}})
async def get(
    response: Response,
    parts: PartsDep,
    caller: CallerDep,
    job_id: str,
    known: Annotated[waiting.Known, Depends(waiting.known)],
) -> Any:  # noqa: ANN401 - JSON, or no body at all
    """One job with progress, cost and attempts; with ``wait`` once there is news of it."""
    if known.waits:
        await waiting.until_news(parts, job_id, caller.project_id, known)
    now = parts.now()
    async with parts.looking.connect() as conn:
        around = await jobs.around(conn, caller.project_id, job_id, now)
    shown = await _shown(parts, around, now)
    tag = {"etag": waiting.etag(shown["version"])}
    if not known.waits and known.has(shown["version"]):
        return Response(status_code=304, headers=tag)
    response.headers.update(tag)
    return shown


@router.patch("/{job_id}")
async def change(
    request: Request, parts: PartsDep, caller: CallerDep, now: Now, job_id: str
) -> dict[str, Any]:
    """Another budget, deadline, price or place; a job that stopped for want of them goes on."""
    body = await bodies.read(request, _LONGEST_BODY)
    asked = job_requests.parse_as(JobPatch, body)
    if "budget" in asked.infrastructure.model_fields_set:
        await tiers.may_be_paid(parts.reading, parts.outside, caller.project_id, job_id)
    async with parts.engine.begin() as conn:
        job = await jobs.get_to_change(conn, caller.project_id, job_id)
        before = Terms.from_dict(job.terms)
        terms = terms_requests.after(before, asked.infrastructure)
        metadata, allowance = asked.new_metadata, parts.allowance
        await jobs.change(conn, caller, job, terms, now, metadata=metadata, allowance=allowance)
        around = await jobs.around(conn, caller.project_id, job_id, now)
    return await _shown(parts, around, now)


@quick_routes.post(router, "/{job_id}/cancel")
async def cancel(request: Request, caller: CallerDep, job_id: str) -> Response:
    """Ask for the end; its nodes are stopped and its machines deleted."""
    return await _wished(parts_of(request), caller, job_id, jobs.request_cancel)


@quick_routes.post(router, "/{job_id}/pause")
async def pause(request: Request, caller: CallerDep, job_id: str) -> Response:
    """Ask for a checkpoint and no machines."""
    return await _wished(parts_of(request), caller, job_id, jobs.request_pause)


@quick_routes.post(router, "/{job_id}/resume")
async def resume(request: Request, caller: CallerDep, job_id: str) -> Response:
    """Take a pause back."""
    parts = parts_of(request)
    await tiers.may_resume(parts.reading, parts.outside, caller.project_id, job_id)
    return await _wished(parts, caller, job_id, jobs.request_resume)


async def _wished(
    parts: Parts, caller: Caller, job_id: str, wish: Callable[..., Awaitable[Around]]
) -> Response:
    now = parts.now()
    async with parts.writing.connect() as conn:
        around = await wish(conn, caller, job_id, now)
    return _json(await _shown(parts, around, now))


async def _shown(parts: Parts, around: Around, now: datetime) -> dict[str, Any]:
    """With its wait; it may ask for prices, so no transaction is open by now."""
    return job_views.detailed(await parts.waits.seen(around, now), now)


def _metadata(request: Request) -> dict[str, str] | None:
    query = request.query_params
    if query.get("metadata") == "null":
        return None
    return {
        name[len("metadata[") : -1]: value
        for name, value in query.items()
        if name.startswith("metadata[") and name.endswith("]")
    }


def _json(shown: dict[str, Any]) -> Response:
    """As FastAPI would answer it, without a check of our own members: 50 us less."""
    return Response(to_json(shown), media_type="application/json")


def _planned(submission: Submission, now: datetime) -> dict[str, Any]:
    plan = plan_views.judged(submission.plan, submission.terms, now)
    return {"object": "fine_tuning.job.plan", "model": submission.model, "plan": plan}
