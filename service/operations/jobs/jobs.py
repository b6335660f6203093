"""Operations on jobs: submit, read, change, cancel, pause and resume."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from contract.choices import Engine
from service.db.files import files
from service.db.files.files import File
from service.db.jobs import events, job_facts, jobs
from service.db.jobs.job_facts import JobOverview
from service.db.jobs.jobs import JobRow
from service.db.money import budgets
from service.db.projects.keys import Caller
from service.db.schema.tables import jobs as table
from service.db.trackers import tracker_runs
from service.domain.errors import (
    FileJustDeleted,
    IdempotencyMismatch,
    InvalidRequest,
    InvalidState,
    JobNotFound,
)
from service.domain.ids import lower_bound_id, new_id
from service.domain.lifecycle.constraints import UNCONSTRAINED, JobConstraints
from service.domain.models import lineage
from service.domain.money import budget
from service.domain.money.budget import DEFAULT_ALLOWANCE, Allowance
from service.domain.planning.plan import Plan
from service.domain.planning.plan_request import PlanRequest
from service.domain.states import JOB_TERMINAL, JobState
from service.operations.models import model_references
from service.operations.money import budgets as money
from service.operations.projects import quotas

_RETRY_WINDOW = timedelta(minutes=15)


class Unchanged(Enum):
    """Marks a value that was not sent, where None is a value."""

    UNCHANGED = "unchanged"


UNCHANGED = Unchanged.UNCHANGED


@dataclass(frozen=True, kw_only=True)
class RequestIdentity:
    """Identity of a request to create a job, to recognise repeats."""

    caller: Caller
    body_sha256: str
    idempotency_key: str | None
    is_retry: bool  # the client says that it sent this before

    @property
    def lock_key(self) -> str:
        """Return the key of the lock that repeats of one request take in turn."""
        return f"submit:{self.caller.project_id}:{self.idempotency_key or self.body_sha256}"

    @property
    def is_first(self) -> bool:
        """Return whether the client says that it did not send this before."""
        return self.idempotency_key is None and not self.is_retry


@dataclass(frozen=True, kw_only=True)
class Submission:
    """A checked request to create a job, ready to be written."""

    identity: RequestIdentity
    request: dict[str, Any]  # as sent, parsed
    model: str  # in full
    training_file: File
    validation_file: File | None
    plan: Plan
    terms: JobConstraints = UNCONSTRAINED
    planned: PlanRequest | None = None  # what the plan answers; None: it was stored before

    @property
    def sources(self) -> frozenset[lineage.ModelSource]:
        """Return the models and checkpoints of other jobs that the job reads."""
        return lineage.sources(self.model, self.plan.recipe.reinforcement)


@dataclass(frozen=True, kw_only=True)
class Submitted:
    """The job that a request has created."""

    job: JobRow
    is_new: bool  # by this very request


async def find_earlier(
    conn: AsyncConnection, identity: RequestIdentity, now: datetime
) -> JobRow | None:
    """Return the job that the same request created before; raises IdempotencyMismatch.

    OpenAI's clients repeat a POST without any key when the answer was lost. The same body from the
    same API key, sent as a retry within 15 minutes, is the same job.
    """
    project_id, key = identity.caller.project_id, identity.idempotency_key
    if key is not None:
        earlier = await jobs.find_newest(conn, project_id, table.c.idempotency_key == key)
        if earlier is not None and earlier.body_sha256 != identity.body_sha256:
            raise IdempotencyMismatch(
                f"Idempotency-Key {key!r} was used with another body. Use a fresh key."
            )
        return earlier
    if not identity.is_retry:
        return None
    since = now - _RETRY_WINDOW
    return await jobs.find_newest(
        conn,
        project_id,
        table.c.id >= lower_bound_id("ftjob", since),  # else every job of the project is looked at
        table.c.api_key_id == identity.caller.api_key_id,
        table.c.body_sha256 == identity.body_sha256,
        table.c.created_at > since,
    )


async def submit(conn: AsyncConnection, submission: Submission, now: datetime) -> Submitted:
    """Write the job, or return the one that the same request created before.

    Raises FileJustDeleted.
    """
    identity = submission.identity
    # Repeats wait for firsts.
    await jobs.acquire_lock(conn, identity.lock_key, shared=identity.is_first)
    if (earlier := await find_earlier(conn, identity, now)) is not None:
        return Submitted(job=earlier, is_new=False)
    await model_references.reserve_sources(conn, identity.caller.project_id, submission.sources)
    row = _new_row(submission, now)
    await _lock_files(conn, row)
    await quotas.require_room_for_job(conn, row.project_id)
    message = f"Created job on {submission.training_file.filename}: {submission.plan.why}"
    await jobs.add(conn, row, message)
    kinds = [integration["type"] for integration in row.request.get("integrations") or ()]
    await tracker_runs.open_all(conn, row.id, kinds, now)
    return Submitted(job=row, is_new=True)


async def get(conn: AsyncConnection, project_id: str, job_id: str) -> JobRow:
    """Return the job, or raise JobNotFound."""
    job = await jobs.find(conn, job_id, project_id)
    if job is None:
        raise _not_found(job_id)
    return job


async def get_locked(conn: AsyncConnection, project_id: str, job_id: str) -> JobRow:
    """Lock and return the job, or raise JobNotFound.

    Of two concurrent changes the second one sees what the first one wrote.
    """
    job = await jobs.find(conn, job_id, project_id, to_write=True)
    if job is None:
        raise _not_found(job_id)
    return job


async def get_with_facts(
    conn: AsyncConnection, project_id: str, job_id: str, now: datetime
) -> JobOverview:
    """Return the job with its facts except its wait, or raise JobNotFound."""
    overview = await job_facts.find_overview(conn, job_id, project_id, now)
    if overview is None:
        raise _not_found(job_id)
    return overview


async def change(
    conn: AsyncConnection,
    caller: Caller,
    job: JobRow,
    terms: JobConstraints,
    now: datetime,
    metadata: dict[str, str] | Unchanged | None = UNCHANGED,
    allowance: Allowance = DEFAULT_ALLOWANCE,
) -> None:
    """Change the job's terms; a job that stopped for lack of money continues if there is some.

    The caller has locked ``job`` with ``get_locked``.
    """
    _require_live(job, "changed")
    if not isinstance(metadata, Unchanged):
        await jobs.set_metadata(conn, job.id, metadata)
    before = job.constraints
    if terms != before:
        _check_terms(job, before, terms, now)
        await budgets.set_terms(conn, job.id, before, terms, now)
    if terms != before and job.over_budget_at is not None:
        await _recheck_budget(conn, job.id, allowance, now)
    text = f"Changed{_actor(caller)}: {_describe_changes(before, terms) or 'metadata'}"
    await events.add(conn, job.id, now, "job.changed", text, data=_key_data(caller))


async def request_cancel(
    conn: AsyncConnection, caller: Caller, job_id: str, now: datetime
) -> JobOverview:
    """Request the job's end; a job that is cancelled, or about to be, stays as it is."""
    is_new = await _write_request(conn, caller, job_id, now, "cancel", "cancel_requested_at")
    overview = await get_with_facts(conn, caller.project_id, job_id, now)
    job = overview.job
    if not (is_new or job.state is JobState.CANCELLED or job.cancel_requested_at):
        _require_live(job, "cancelled")
    return overview


async def request_pause(
    conn: AsyncConnection, caller: Caller, job_id: str, now: datetime
) -> JobOverview:
    """Request a checkpoint and then no machines; a paused job stays as it is."""
    is_new = await _write_request(conn, caller, job_id, now, "pause", "pause_requested_at")
    overview = await get_with_facts(conn, caller.project_id, job_id, now)
    if not (is_new or overview.job.pause_requested_at):
        _require_live(overview.job, "paused")
    return overview


async def request_resume(
    conn: AsyncConnection, caller: Caller, job_id: str, now: datetime
) -> JobOverview:
    """Withdraw a pause, if there is one."""
    column = "pause_requested_at"
    is_new = await _write_request(conn, caller, job_id, now, "resume", column, back=True)
    overview = await get_with_facts(conn, caller.project_id, job_id, now)
    job = overview.job
    if is_new:
        return overview
    _require_live(job, "resumed")
    if job.pause_requested_at is None and job.over_budget_at and job.state is JobState.PAUSED:
        raise InvalidState(f"Job {job.id} is paused: {job.over_budget_because}.")
    return overview


async def _write_request(
    conn: AsyncConnection,
    caller: Caller,
    job_id: str,
    now: datetime,
    verb: str,
    column: str,
    *,
    back: bool = False,
) -> bool:
    """Write the request with its event; return False where nothing changes."""
    is_new = await jobs.request_once(conn, caller.project_id, job_id, now, column, clear=back)
    if is_new:
        text = f"{verb.capitalize()} requested{_actor(caller)}"
        data = _key_data(caller)
        await events.add(conn, job_id, now, f"job.{verb}_requested", text, data=data)
    return is_new


def _actor(caller: Caller) -> str:
    return " by an operator" if caller.operates else ""


def _key_data(caller: Caller) -> dict[str, str]:
    """Return the event data that names the request's API key."""
    return {"api_key_id": caller.api_key_id}


async def _lock_files(conn: AsyncConnection, row: JobRow) -> None:
    """Lock the job's files, so that none is deleted while the job is written."""
    file_ids = {p: getattr(row, p) for p in ("training_file", "validation_file") if getattr(row, p)}
    locked = await files.lock_for_use(conn, row.project_id, file_ids.values())
    for param, file in file_ids.items():
        if file not in locked:
            raise FileJustDeleted(file, param)


def _new_row(submission: Submission, now: datetime) -> JobRow:
    validation = submission.validation_file
    return JobRow(
        id=new_id("ftjob", now),
        project_id=submission.identity.caller.project_id,
        api_key_id=submission.identity.caller.api_key_id,
        idempotency_key=submission.identity.idempotency_key,
        body_sha256=submission.identity.body_sha256,
        request=submission.request,
        model=submission.model,
        training_file=submission.training_file.id,
        validation_file=validation.id if validation else None,
        plan=submission.plan.as_dict(),
        run_spec_sha256=None,
        inputs=[],
        total_steps=submission.plan.recipe.total_steps,
        state=JobState.VALIDATING,
        since=now,
        reason="model and data are being checked",
        error=None,
        created_at=now,
        started_at=None,
        finished_at=None,
        cancel_requested_at=None,
        pause_requested_at=None,
        trainer_errors=0,
        result=None,
        version=2,  # with its first event
        updated_at=now,
        progress={},
        lost_steps=0,
        trained_tokens=None,
        result_file=None,
        terms=submission.terms.as_dict(),
        over_budget_at=None,
        over_budget_because="",
        at_risk_at=None,
        waits_for="",
    )


def _not_found(job_id: str) -> JobNotFound:
    return JobNotFound(f"No fine-tuning job {job_id:.80}. List yours: GET /v1/fine_tuning/jobs.")


async def _recheck_budget(
    conn: AsyncConnection, job_id: str, allowance: Allowance, now: datetime
) -> None:
    """Clear the mark of an exhausted budget, unless a budget of the job is still exhausted."""
    standing = await money.find_exhausted(conn, job_id, allowance, now)
    if standing is None:
        await budgets.clear_exhausted(conn, job_id)
    else:
        reason = budget.exhausted_message(standing, job_id)
        await budgets.update_exhausted_reason(conn, job_id, reason)


def _check_terms(job: JobRow, before: JobConstraints, terms: JobConstraints, now: datetime) -> None:
    """Refuse impossible terms; money and time are checked when machines are requested next."""
    is_new = terms.deadline != before.deadline  # a passed deadline must not block other changes
    if is_new and terms.deadline is not None and terms.deadline <= now:
        raise InvalidRequest(
            "The deadline is in the past. Send a future time in Unix seconds.",
            param="infrastructure.deadline",
        )
    _check_regions(job, before.regions, terms.regions)
    _check_engine(job, before.engine, terms.engine)


def _check_regions(job: JobRow, before: tuple[str, ...], regions: tuple[str, ...]) -> None:
    """Refuse regions that the job's plan has no offerings in: a job is planned once."""
    requested = (job.request.get("infrastructure") or {}).get("regions")
    if requested and regions != before and not (regions and set(regions) <= set(requested)):
        raise InvalidRequest(
            f"The job was planned for {', '.join(requested)} only. To train in other regions,"
            " cancel it and submit it again with them or without regions.",
            param="infrastructure.regions",
        )
    planned_regions = {option.offering.region for option in job.parsed_plan.options}
    if regions and not planned_regions & set(regions):
        raise InvalidRequest(
            f"The job was planned for {', '.join(sorted(planned_regions))}: "
            "keep one of them in regions.",
            param="infrastructure.regions",
        )


def _check_engine(job: JobRow, before: Engine | None, engine: Engine | None) -> None:
    """Refuse an engine that the job's plan has no offerings of: a job is planned once."""
    requested = (job.request.get("infrastructure") or {}).get("engine")
    if requested and engine not in (requested, before):
        raise InvalidRequest(
            f"The job was planned for {requested} only. To use other machines, cancel it and submit"
            " it again without engine or with another one.",
            param="infrastructure.engine",
        )
    engines = {option.offering.engine for option in job.parsed_plan.options}
    if engine and engine not in engines:
        raise InvalidRequest(
            f"The job was planned for {', '.join(sorted(engines))}: send that engine, or none.",
            param="infrastructure.engine",
        )


def _describe_changes(before: JobConstraints, after: JobConstraints) -> str:
    """Describe the terms that differ, with their new values."""
    former, new = before.as_dict(), after.as_dict()
    changes = [f"{name} to {new[name] or 'none'}" for name in new if new[name] != former[name]]
    return ", ".join(changes)


def _require_live(job: JobRow, verb: str) -> None:
    if job.state in JOB_TERMINAL:
        raise InvalidState(f"Job {job.id} is over ({job.state}) and cannot be {verb} any more.")
