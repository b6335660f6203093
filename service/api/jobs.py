"""/v1/fine_tuning/jobs: create, list, get, cancel, pause, resume."""

import hashlib
import secrets
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Request, Response
from sqlalchemy.ext.asyncio import AsyncConnection

from service.api import bodies, job_requests, job_views, waiting
from service.api.deps import CallerDep, Db, Now, Parts, PartsDep
from service.api.job_requests import JobRequest
from service.api.pages import After, clamp, known, page
from service.db import files as file_rows
from service.db import job_facts
from service.db import jobs as rows
from service.db.files import File
from service.db.keys import Caller
from service.domain import lineage, results
from service.domain.architecture import Architecture
from service.domain.errors import InvalidRequest
from service.domain.method import learning_from
from service.domain.plan import Accelerator, Offer, Plan, PlanRequest, make_plan
from service.domain.ranking import formats
from service.domain.recipe import Training
from service.domain.reinforcement import lacking
from service.operations import bases, jobs, tiers
from service.operations.bases import Basis
from service.operations.jobs import Sending, Submission
from trainer.contract import Reinforcement

router = APIRouter(prefix="/fine_tuning/jobs", tags=["fine-tuning"])
_MOST = 100
_LONGEST_BODY = 1024 * 1024


@router.post("")
async def create(
    request: Request,
    parts: PartsDep,
    caller: CallerDep,
    now: Now,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=255)] = None,
    x_stainless_retry_count: Annotated[int, Header()] = 0,
    *,
    dry_run: bool = False,
) -> dict[str, Any]:
    """Plan the job, refuse what can never work, and take it on; with ``dry_run`` plan alone."""
    body = await bodies.read(request, _LONGEST_BODY)
    asked = job_requests.parse(body)
    sending = Sending(
        caller=caller,
        body_sha256=hashlib.sha256(body).hexdigest(),
        idempotency_key=idempotency_key,
        is_retry=x_stainless_retry_count > 0,
    )
    if dry_run:
        return _planned(await _submission(parts, sending, asked))
    async with parts.engine.connect() as conn:
        job = await jobs.sent_before(conn, sending, now)
    if job is None:
        submission = await _submission(parts, sending, asked)
        async with parts.engine.begin() as conn:
            job = await jobs.submit(conn, submission, now)
    async with parts.engine.connect() as conn:
        return await _shown(conn, job.id, caller, now)


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
    async with parts.engine.connect() as conn:
        shown = await _shown(conn, job_id, caller, parts.now())
    tag = {"etag": waiting.etag(shown["version"])}
    if not known.waits and known.has(shown["version"]):
        return Response(status_code=304, headers=tag)
    response.headers.update(tag)
    return shown


@router.post("/{job_id}/cancel")
async def cancel(db: Db, caller: CallerDep, now: Now, job_id: str) -> dict[str, Any]:
    """Ask for the end; its nodes are stopped and its machines deleted."""
    await jobs.request_cancel(db, caller.project_id, job_id, now)
    return await _shown(db, job_id, caller, now)


@router.post("/{job_id}/pause")
async def pause(db: Db, caller: CallerDep, now: Now, job_id: str) -> dict[str, Any]:
    """Ask for a checkpoint and no machines."""
    await jobs.request_pause(db, caller.project_id, job_id, now)
    return await _shown(db, job_id, caller, now)


@router.post("/{job_id}/resume")
async def resume(parts: PartsDep, caller: CallerDep, now: Now, job_id: str) -> dict[str, Any]:
    """Take a pause back."""
    await tiers.may_resume(parts.engine, parts.outside, caller.project_id, job_id)
    async with parts.engine.begin() as conn:
        await jobs.request_resume(conn, caller.project_id, job_id, now)
        return await _shown(conn, job_id, caller, now)


async def _shown(
    conn: AsyncConnection, job_id: str, caller: Caller, now: datetime
) -> dict[str, Any]:
    around = await jobs.around(conn, caller.project_id, job_id, now)
    return job_views.detailed(around, now)


def _metadata(request: Request) -> dict[str, str] | None:
    query = request.query_params
    if query.get("metadata") == "null":
        return None
    return {
        name[len("metadata[") : -1]: value
        for name, value in query.items()
        if name.startswith("metadata[") and name.endswith("]")
    }


def _planned(submission: Submission) -> dict[str, Any]:
    plan = submission.plan.as_dict()
    return {"object": "fine_tuning.job.plan", "model": submission.model, "plan": plan}


async def _submission(parts: Parts, sending: Sending, asked: JobRequest) -> Submission:
    training, validation = await _files(parts, sending.caller, asked)
    base, judge = await _models(parts, sending.caller, asked, training)
    return Submission(
        sending=sending,
        request=asked.model_dump(mode="json") | {"seed": _seed(asked)},
        model=base.name,
        training_file=training,
        validation_file=validation,
        plan=await _plan(parts, asked, training, validation, base, judge),
    )


def _seed(asked: JobRequest) -> int:
    return secrets.randbelow(2**31) if asked.seed is None else asked.seed


async def _files(parts: Parts, caller: Caller, asked: JobRequest) -> tuple[File, File | None]:
    found = []
    async with parts.engine.connect() as conn:
        for param in ("training_file", "validation_file"):
            file_id = getattr(asked, param)
            file = await file_rows.find(conn, caller.project_id, file_id) if file_id else None
            if file_id and file is None:
                raise InvalidRequest(
                    f"{param}: no file {file_id}. Upload it with POST /v1/files first.",
                    code="file_not_found",
                    param=param,
                )
            if file and file.purpose == results.PURPOSE:
                raise InvalidRequest(
                    f"{param}: {file_id} is a job's result, not a dataset. Upload one with "
                    "POST /v1/files.",
                    param=param,
                )
            if file:
                _check_format(file, param, asked.asked_training())
                _check_members(file, param, asked.asked_training().reinforcement)
            found.append(file)
    training, validation = found
    assert training is not None, "training_file is required"
    if asked.asked_method() == "classification":
        _check_labels(training, validation)
    return training, validation


def _check_format(file: File, param: str, training: Training) -> None:
    wanted = formats(training.method, training.ranked)
    if file.format not in wanted:
        others = " or ".join(learning_from(file.format))
        plural = " or ".join(rows.plural for rows in wanted)
        raise InvalidRequest(
            f"{param}: {file.id} holds {file.format.plural}, and method {training.method} learns "
            f"from {plural}. Give a file of {plural}, or choose method {others}.",
            code="wrong_file_format",
            param=param,
        )


def _check_labels(training: File, validation: File | None) -> None:
    if len(training.labels) < 2:
        raise InvalidRequest(
            f"training_file: every row of {training.id} has the label {training.labels[0]!r}. "
            "There must be at least two to tell apart.",
            code="too_few_labels",
            param="training_file",
        )
    unknown = sorted(set(validation.labels if validation else ()) - set(training.labels))
    if validation and unknown:
        raise InvalidRequest(
            f"validation_file: {validation.id} has the label {unknown[0]!r}, and no row of the "
            "training file has it. Leave those rows out, or train on some.",
            code="unknown_label",
            param="validation_file",
        )


def _check_members(file: File, param: str, settings: Reinforcement | None) -> None:
    if settings is not None and (what := lacking(settings, file.members)):
        raise InvalidRequest(
            f"{param}: {what}. Add it to every row of {file.id}, or change the grader.",
            code="missing_grader_input",
            param=param,
        )


async def _models(
    parts: Parts, caller: Caller, asked: JobRequest, training: File
) -> tuple[Basis, Basis | None]:
    """What the job begins with and what its grader asks, or InvalidRequest or Archived."""
    find = partial(bases.readable, parts.engine, parts.outside, caller.project_id)
    base = await find(asked.model)
    if base.method is not None:
        lineage.refuse_other_head(base.name, base.method, asked.asked_method())
    if base.method == "classification":
        lineage.refuse_other_labels(base.name, base.labels, training.labels)
    named = lineage.judge(asked.asked_training().reinforcement)
    if named is None:
        return base, None
    if not lineage.is_made(named):
        lineage.refuse_no_judge(named, None)
    judge = await find(named, lineage.OF_GRADER)
    lineage.refuse_no_judge(judge.name, judge.method)
    return base, judge


async def _plan(
    parts: Parts,
    asked: JobRequest,
    training: File,
    validation: File | None,
    base: Basis,
    judge: Basis | None,
) -> Plan:
    """The plan, or InvalidRequest for a model that cannot fit."""
    defaults, elastic = parts.plan_defaults, asked.infrastructure.elastic
    prices = await parts.prices.prices(list(defaults.offerings))
    offers = tuple(
        Offer(
            offering=offering,
            price=prices.get(offering),
            evictions_per_hour=defaults.hazard_per_hour,
        )
        for offering in defaults.offerings
    )
    answers = max(2, training.answers, validation.answers if validation else 0)
    accelerator: Accelerator = "cpu" if defaults.accelerator == "cpu" else "cuda"
    return make_plan(
        PlanRequest(
            arch=Architecture.from_config(base.staged.config),
            judge=Architecture.from_config(judge.staged.config) if judge else None,
            hyperparameters=asked.asked_hyperparameters(),
            training=replace(asked.asked_training(), answers=answers),
            examples=training.examples,
            mean_tokens=training.mean_tokens,
            offers=offers,
            nodes=asked.infrastructure.nodes,
            min_nodes=elastic.min_nodes if elastic else None,
            processes_per_node=defaults.processes_per_node,
            accelerator=accelerator,
            cpu_flops=defaults.cpu_flops,
            recovery_seconds=defaults.recovery_seconds,
        )
    )
