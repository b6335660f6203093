"""Read and write rows of jobs; only this module and `job_moves.py` write a job's state."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Row, ScalarSelect, and_, func, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.core import leases, notify
from service.db.core.leases import Claim
from service.db.jobs import events, job_versions, results
from service.db.queue import queue
from service.db.schema.columns import among
from service.db.schema.tables import attempts, jobs, metrics
from service.db.schema.tables import events as events_table
from service.domain.errors import IllegalMove, LeaseLost, NothingTrained
from service.domain.lifecycle.constraints import JobConstraints
from service.domain.lifecycle.job import Job, LastAttempt, MoveJob
from service.domain.planning.plan import Plan
from service.domain.states import JOB_MOVES, JOB_TERMINAL, AttemptState, JobState, Outcome


@dataclass(frozen=True, kw_only=True)
class JobRow:
    """Row of a job, without its lease."""

    id: str
    project_id: str
    api_key_id: str
    idempotency_key: str | None
    body_sha256: str
    request: dict[str, Any]
    model: str
    training_file: str
    validation_file: str | None
    plan: dict[str, Any]
    run_spec_sha256: str | None
    inputs: list[str]
    total_steps: int
    state: JobState
    since: datetime
    reason: str
    error: dict[str, Any] | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    cancel_requested_at: datetime | None
    pause_requested_at: datetime | None
    trainer_errors: int
    result: dict[str, Any] | None
    version: int
    updated_at: datetime
    progress: dict[str, Any]
    lost_steps: int
    trained_tokens: int | None
    result_file: str | None
    terms: dict[str, Any]
    over_budget_at: datetime | None
    over_budget_because: str
    at_risk_at: datetime | None
    waits_for: str
    asks_again_at: datetime | None = None
    returns_since: datetime | None = None

    @property
    def parsed_plan(self) -> Plan:
        """Return the plan that the user has accepted."""
        return Plan.from_dict(self.plan)

    @property
    def constraints(self) -> JobConstraints:
        """Return the budget and the deadline that hold now."""
        return JobConstraints.from_dict(self.terms)


_LAST = text("""
select a.*, coalesce(a.over_at, a.since) < j.since resumed from jobs j
cross join lateral (
  select id, job_id, number, state, since, over_at, outcome, reason, refusals, duds, ran_at
  from attempts where job_id = j.id order by number desc limit 1
) a
where j.id = any(cast(:ids as text[]))
""")
_DUE = leases.due(
    jobs,
    jobs.c.state.not_in(JOB_TERMINAL),
    urgent=jobs.c.state.in_((JobState.RUNNING, JobState.RECOVERING)),
)
_LOCK = text("select pg_advisory_xact_lock(hashtextextended(:what, 0))")
_SHARED_LOCK = text("select pg_advisory_xact_lock_shared(hashtextextended(:what, 0))")
_COLUMNS = [jobs.c[name] for name in JobRow.__dataclass_fields__]


async def find(
    conn: AsyncConnection, job_id: str, project_id: str | None = None, *, to_write: bool = False
) -> JobRow | None:
    """Return the job, locked if ``to_write``; None if unknown or not in ``project_id``."""
    query = select(*_COLUMNS).where(jobs.c.id == job_id)
    if project_id is not None:
        query = query.where(jobs.c.project_id == project_id)
    query = query.with_for_update(key_share=True) if to_write else query
    row = (await conn.execute(query)).one_or_none()
    return parse_row(row) if row else None


async def add(conn: AsyncConnection, row: JobRow, message: str) -> None:
    """Write a new job with its first event, and wake a reconciler."""
    first = events.new_event(row.id, None, row.created_at, "job.created", message)
    await conn.execute(insert(jobs), vars(row) | {"due_at": row.created_at})
    await conn.execute(insert(events_table), vars(first))
    await notify.notify(conn, notify.DUE, job_versions.topic(row.id))


async def acquire_lock(conn: AsyncConnection, name: str, *, shared: bool = False) -> None:
    """Wait for the advisory lock on ``name``, and hold it until the transaction ends.

    A ``shared`` lock conflicts with exclusive locks only.
    """
    await conn.execute(_SHARED_LOCK if shared else _LOCK, {"what": name})


async def find_all(conn: AsyncConnection, ids: Collection[str]) -> dict[str, JobRow]:
    """Return the known jobs among ``ids``, by id."""
    query = select(*_COLUMNS).where(among(jobs.c.id, ids))
    return {row.id: parse_row(row) for row in await conn.execute(query)}


async def find_newest(
    conn: AsyncConnection, project_id: str, *conditions: ColumnElement[bool]
) -> JobRow | None:
    """Return the project's newest job that meets ``conditions``; None if there is none."""
    query = select(*_COLUMNS).where(jobs.c.project_id == project_id, *conditions)
    row = (await conn.execute(query.order_by(jobs.c.id.desc()).limit(1))).one_or_none()
    return parse_row(row) if row else None


async def in_state(conn: AsyncConnection, project_id: str, state: JobState) -> list[JobRow]:
    """Return every job of the project that is in ``state``, newest first."""
    query = select(*_COLUMNS).where(jobs.c.project_id == project_id, jobs.c.state == state)
    return [parse_row(r) for r in await conn.execute(query.order_by(jobs.c.id.desc()))]


async def unfinished_jobs(conn: AsyncConnection, project_id: str) -> list[JobRow]:
    """Return every job of the project that is not over."""
    live = jobs.c.state.not_in(JOB_TERMINAL)
    return [
        parse_row(r)
        for r in await conn.execute(select(*_COLUMNS).where(jobs.c.project_id == project_id, live))
    ]


async def claim_due(conn: AsyncConnection, now: datetime, limit: int) -> list[tuple[Claim, Job]]:
    """Lease up to ``limit`` due jobs; return them as decisions see them."""
    claims = await leases.claim_due(conn, _DUE, now, limit)
    last = await _last_attempts(conn, [claim.row_id for claim in claims])
    return [(claim, _snapshot(claim.row, last.get(claim.row_id))) for claim in claims]


async def move(
    conn: AsyncConnection,
    claim: Claim,
    job: Job,
    step: MoveJob,
    now: datetime,
    **values: Any,  # noqa: ANN401
) -> None:
    """Write one move with its event; the move must exist and the lease must hold.

    Raises NothingTrained for the success of a job that has trained on no token. A job without any
    metrics passes, as in a restored database: its number of tokens is unknown.
    """
    if step.to not in JOB_MOVES[job.state]:
        raise IllegalMove("job", job.state, step.to)
    values |= {"state": step.to, "since": now, "reason": step.reason}
    if step.to in JOB_TERMINAL:
        values["finished_at"] = now
        values["trained_tokens"] = _trained_tokens(job.id)
    if step.to is JobState.SUCCEEDED:
        tokens = (await conn.execute(select(_trained_tokens(job.id)))).scalar_one()
        if tokens is not None and tokens <= 0:
            raise NothingTrained
        values["result_file"] = await results.add_file(conn, claim.row, now)
    if step.to is JobState.RUNNING and claim.row.started_at is None:
        values["started_at"] = now
    await leases.release(conn, claim, now, now, **values)
    await queue.drop_admission(conn, job.id, job.state, step.to)
    level = "error" if step.to is JobState.FAILED else "info"
    message = f"Job {step.to}" + (f": {step.reason}" if step.reason else "")
    await events.add(conn, job.id, now, f"job.{step.to}", message, level=level)


async def request_action(
    conn: AsyncConnection,
    job_id: str,
    now: datetime,
    **columns: Any,  # noqa: ANN401
) -> None:
    """Write a request on the job, such as cancel_requested_at; make it and its attempts due."""
    await _request(conn, job_id, (), now, columns)


async def request_once(
    conn: AsyncConnection,
    project_id: str,
    job_id: str,
    now: datetime,
    column: str,
    *,
    clear: bool = False,
) -> bool:
    """Set ``column``, the time of a request, or clear it with ``clear``; wake reconcilers.

    Return False and write nothing if the project has no such job, the job is over, or the request
    is set (``clear``: missing) already.
    """
    requested_at = jobs.c[column]
    conditions = (
        jobs.c.project_id == project_id,
        jobs.c.state.not_in(JOB_TERMINAL),
        requested_at.is_not(None) if clear else requested_at.is_(None),
    )
    result = await conn.execute(select(jobs.c.id).where(jobs.c.id == job_id, *conditions))
    if result.first() is None:
        return False
    return await _request(conn, job_id, conditions, now, {column: None if clear else now})


async def request_if_unchanged(
    conn: AsyncConnection,
    claim: Claim,
    now: datetime,
    **columns: Any,  # noqa: ANN401
) -> None:
    """Write a request that was decided from the claimed row, as ``request_action`` does.

    Raises LeaseLost if the job has had a request since it was claimed, or the lease is gone.
    """
    same = (jobs.c.lease_token == claim.token, jobs.c.hints == claim.hints)
    if not await _request(conn, claim.row_id, same, now, columns):
        raise LeaseLost(f"jobs {claim.row_id}")


async def _request(
    conn: AsyncConnection,
    job_id: str,
    conditions: tuple[ColumnElement[bool], ...],
    now: datetime,
    columns: dict[str, Any],
) -> bool:
    """Write a request; return whether the job met ``conditions``. If not, the caller rolls back."""
    live = and_(attempts.c.job_id == job_id, attempts.c.state != AttemptState.ENDED)
    ids = (await conn.execute(select(attempts.c.id).where(live))).scalars().all()
    await leases.enqueue_all(conn, attempts, ids, now)  # locks: attempts, then the job
    wake_up = {"due_at": func.least(jobs.c.due_at, now), "hints": jobs.c.hints + 1}
    statement = update(jobs).where(jobs.c.id == job_id, *conditions).returning(jobs.c.id)
    done = await conn.execute(statement.values(**columns, **wake_up))
    await notify.notify(conn, notify.DUE)
    return done.one_or_none() is not None


async def set_metadata(conn: AsyncConnection, job_id: str, metadata: dict[str, str] | None) -> None:
    """Replace the metadata of the job's request."""
    request = jobs.c.request.concat({"metadata": metadata})
    await conn.execute(update(jobs).where(jobs.c.id == job_id).values(request=request))


async def forget_trainer_errors(conn: AsyncConnection, job_id: str) -> None:
    """Reset the count of consecutive trainer errors: a checkpoint was committed."""
    await conn.execute(update(jobs).where(jobs.c.id == job_id).values(trainer_errors=0))


async def remember_result(conn: AsyncConnection, job_id: str, result: dict[str, Any]) -> None:
    """Store HEAD's entry of the final model once; nodes may write to HEAD later."""
    none = func.coalesce(func.jsonb_typeof(jobs.c.result), "null") == "null"  # SQL's or JSON's
    await conn.execute(update(jobs).where(jobs.c.id == job_id, none).values(result=result))


async def mark_model_deleted(conn: AsyncConnection, job_id: str, now: datetime) -> None:
    """Mark the final model as deleted, and schedule the collection of its bytes."""
    result = jobs.c.result.concat({"deleted_at": int(now.timestamp())})
    statement = update(jobs).where(jobs.c.id == job_id)
    await conn.execute(statement.values(result=result, collected_generation=0))


async def schedule_collection(conn: AsyncConnection, job_id: str) -> None:
    """Schedule another sweep of the checkpoints of a job that is over."""
    statement = update(jobs).where(jobs.c.id == job_id)
    await conn.execute(statement.values(collected_generation=0))


async def is_model_deleted(conn: AsyncConnection, job_id: str) -> bool:
    """Return whether the final model is marked as deleted."""
    query = select(jobs.c.result.has_key("deleted_at")).where(jobs.c.id == job_id)
    return bool((await conn.execute(query)).scalar_one_or_none())


def _snapshot(r: Row[Any], last: LastAttempt | None) -> Job:
    terms = JobConstraints.from_dict(r.terms)
    return Job(
        id=r.id,
        state=JobState(r.state),
        since=r.since,
        cancel_requested=r.cancel_requested_at is not None,
        pause_requested=r.pause_requested_at is not None,
        over_budget=terms.on_exhausted if r.over_budget_at else None,
        deadline=terms.deadline,
        because=r.over_budget_because,
        has_trained=r.started_at is not None,
        last_attempt=last,
    )


async def _last_attempts(conn: AsyncConnection, job_ids: list[str]) -> dict[str, LastAttempt]:
    """Return the last attempt of each job that has one."""
    if not job_ids:
        return {}
    rows = await conn.execute(_LAST, {"ids": job_ids})
    return {row.job_id: _last_attempt(row) for row in rows}


def _last_attempt(row: Row[Any]) -> LastAttempt:
    outcome = Outcome(row.outcome) if row.outcome else None
    refusals, duds = consecutive_failures(
        outcome, row.ran_at, row.refusals, row.duds, resumed=row.resumed
    )
    return LastAttempt(
        id=row.id,
        number=row.number,
        state=AttemptState(row.state),
        since=row.since,
        outcome=outcome,
        reason=row.reason,
        refusals=refusals,
        duds=duds,
        resumed=bool(row.resumed),
    )


def consecutive_failures(
    outcome: Outcome | None, ran_at: datetime | None, refusals: int, duds: int, *, resumed: bool
) -> tuple[int, int]:
    """Count consecutive attempts that got no machines, and those that never trained.

    ``refusals``, ``duds``: the counts before this attempt; the result includes it. While it has no
    outcome, refusals stay and duds are 0. If the job was ``resumed`` since, duds restart.
    """
    if outcome is None:
        return refusals, 0
    if outcome in (Outcome.NO_CAPACITY, Outcome.PROVISIONING_FAILED):
        return refusals + 1, 0 if resumed else duds
    is_dud = outcome is Outcome.UNRESPONSIVE and ran_at is None and not resumed
    return 0, duds + 1 if is_dud else 0


def _trained_tokens(job_id: str) -> ScalarSelect[int | None]:
    """Return a query for the job's trained tokens; a repeated step counts once."""
    return select(func.sum(metrics.c.tokens)).where(metrics.c.job_id == job_id).scalar_subquery()


def parse_row(r: Row[Any]) -> JobRow:
    """Return the job that a row of the table holds."""
    values = {name: getattr(r, name) for name in JobRow.__dataclass_fields__}
    return JobRow(**values | {"state": JobState(r.state)})
