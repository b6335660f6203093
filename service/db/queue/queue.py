"""Read and write the queue: `waits_since` marks a queued job, `admitted_at` an admitted one.

A transaction that writes both a job and its row here locks the job first, as moves of jobs do.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    case,
    delete,
    func,
    literal,
    literal_column,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from contract.choices import Priority
from service.db.core import notify
from service.db.jobs.events import Event, add_all
from service.db.schema.columns import Moment, among
from service.db.schema.queue_tables import queue, turns
from service.db.schema.tables import jobs
from service.domain.ids import new_id
from service.domain.lifecycle.attempt import TOO_LONG_TO_DELETE
from service.domain.queue.admission import (
    ADMISSION_HOLD,
    AdmittedJob,
    QueuedJob,
    RegionRequest,
    WaitingJob,
    WaitReason,
)
from service.domain.states import JOB_TERMINAL, JobState

TOPIC = "queue"  # a job may be admitted now
_LEASE_NAME = "admission"
_c = queue.c
_PRIORITIES = {str(priority): priority for priority in Priority}
# Since when an admitted job without a live attempt could have requested machines. Its reservation
# does not lapse while its machines are being deleted: they may use the last free cores.
_DELETION_SECONDS = TOO_LONG_TO_DELETE.total_seconds()
IDLE_SINCE = f"""greatest(queue.admitted_at, (
  select max(coalesce(ended_at, coalesce(over_at, since) + interval '{_DELETION_SECONDS} seconds'))
  from attempts where job_id = queue.job_id
))"""  # noqa: S608 - a constant
idle_since: ColumnElement[datetime] = literal_column(IDLE_SINCE, Moment)
_LOCK = text("select pg_advisory_xact_lock(hashtextextended('admission', 0))")
_WRITE_STANDINGS = text("""
update queue q set position = t.position, code = t.code, why = t.why
from unnest(cast(:ids as text[]), cast(:positions as int[]), cast(:codes as text[]),
  cast(:whys as text[])) t(job_id, position, code, why)
where q.job_id = t.job_id and q.waits_since is not null
""")
_ADMIT = text("""
update queue q set admitted_at = :now, waits_since = null, position = null, code = '', why = '',
  region = t.region, cores = t.cores
from unnest(cast(:ids as text[]), cast(:regions as text[]), cast(:cores as int[]))
  t(job_id, region, cores)
where q.job_id = t.job_id and q.waits_since is not null
""")
_RAISE_VERSIONS = text("""
with notified as (
  update jobs set version = version + 1, updated_at = greatest(updated_at, :now)
  where id = any(cast(:ids as text[])) returning id
)
select pg_notify(:channel, 'job:' || id) from notified
""")


class WrittenStanding(NamedTuple):
    """Queue standing of a job, as it was last written."""

    position: int | None
    code: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Gang:
    """Request of a job, which is admitted as a whole or not at all."""

    job_id: str
    project_id: str
    priority: Priority
    gpus: int
    wants: tuple[RegionRequest, ...]

    def row(self) -> dict[str, Any]:
        """Return the columns of the job's row."""
        wants = [[want.region, want.cores] for want in self.wants]
        return vars(self) | {"priority": str(self.priority), "wants": wants}

    def waiting(self, since: datetime) -> QueuedJob:
        """Return the queued job as decisions see it."""
        return QueuedJob(**vars(self), since=since)


async def is_admitted(conn: AsyncConnection, job_id: str) -> bool:
    """Return whether the job is admitted, so that it may request machines."""
    query = select(_c.admitted_at.is_not(None)).where(_c.job_id == job_id)
    return bool((await conn.execute(query)).scalar_one_or_none())


async def admitted(
    conn: AsyncConnection, job_ids: Collection[str], now: datetime
) -> dict[str, tuple[str, int]]:
    """Return which of the jobs are admitted, each with its region and reserved cores."""
    reserved_cores = case((idle_since > now - ADMISSION_HOLD, _c.cores), else_=0)
    query = select(_c.job_id, _c.region, reserved_cores)
    rows = await conn.execute(query.where(among(_c.job_id, job_ids), _c.admitted_at.is_not(None)))
    return {job_id: (region, cores) for job_id, region, cores in rows}


async def send_back(conn: AsyncConnection, gang: Gang, since: datetime, now: datetime) -> bool:
    """Requeue an admitted job whose reservation has lapsed, and wake admission.

    ``since``: when the job began to want machines; its wait counts from then. The caller has locked
    the job. Return False if the job is not admitted or its reservation holds.
    """
    none = {
        "admitted_at": None,
        "position": None,
        "region": "",
        "cores": 0,
        "code": WaitReason.PENDING,
    }
    waits = none | {"why": "", "waits_since": since}
    request = {name: gang.row()[name] for name in ("priority", "gpus", "wants")}
    conditions = (
        _c.job_id == gang.job_id,
        _c.admitted_at.is_not(None),
        idle_since <= now - ADMISSION_HOLD,
    )
    statement = update(queue).where(*conditions).values(request | waits).returning(_c.job_id)
    if (await conn.execute(statement)).one_or_none() is None:
        return False
    await notify.notify(conn, TOPIC)
    return True


async def move_reservation(conn: AsyncConnection, job_id: str, region: str, cores: int) -> None:
    """Move the reservation of an admitted job to the region where it requests machines now."""
    elsewhere = (_c.job_id == job_id, _c.admitted_at.is_not(None), _c.region != region)
    await conn.execute(update(queue).where(*elsewhere).values(region=region, cores=cores))


async def acquire_admission_lock(conn: AsyncConnection) -> None:
    """Wait for the admission lock, and hold it until the transaction ends."""
    await conn.execute(_LOCK)


async def acquire_lease(conn: AsyncConnection, holder: str, now: datetime, life: timedelta) -> bool:
    """Take or renew the lease of the queue's leader; return whether ``holder`` has it.

    If the leader dies, another replica takes over after ``life``. A lease that ends more than two
    lives away was set by a clock that is ahead, and is ignored.
    """
    c = turns.c
    can_take = (c.holder == holder) | (c.ends_at < now) | (c.ends_at > now + 2 * life)
    values = {"holder": holder, "ends_at": now + life}
    first = upsert(turns).values(what=_LEASE_NAME, **values)
    statement = first.on_conflict_do_update(index_elements=[c.what], set_=values, where=can_take)
    return (await conn.execute(statement.returning(c.what))).one_or_none() is not None


async def enqueue(conn: AsyncConnection, gang: Gang, now: datetime) -> None:
    """Queue the job, or update the requests of a queued one; wake admission."""
    row = gang.row()
    retained = {"waits_since": func.coalesce(_c.waits_since, now)}
    request = {name: row[name] for name in ("priority", "gpus", "wants")}
    new = upsert(queue).values(**row, waits_since=now)
    await conn.execute(
        new.on_conflict_do_update(
            index_elements=[_c.job_id], set_=request | retained, where=_c.admitted_at.is_(None)
        )
    )
    await notify.notify(conn, TOPIC)


async def admit_at_once(
    conn: AsyncConnection, gang: Gang, now: datetime, region: str = "", cores: int = 0
) -> None:
    """Admit a job that need not wait."""
    values = {"admitted_at": now, "region": region, "cores": cores, "code": "", "why": ""}
    values |= {"waits_since": None, "position": None}
    new = upsert(queue).values(**gang.row() | values)
    request = {name: gang.row()[name] for name in ("priority", "gpus", "wants")}
    await conn.execute(new.on_conflict_do_update(index_elements=[_c.job_id], set_=request | values))


async def drop_admission(
    conn: AsyncConnection, job_id: str, before: JobState, to: JobState
) -> None:
    """Drop the admission of a job that pauses or ends, so that another one may be admitted."""
    await drop_admissions(conn, [(job_id, before, to)])


async def drop_admissions(
    conn: AsyncConnection, moves: Sequence[tuple[str, JobState, JobState]]
) -> None:
    """Drop admissions as ``drop_admission`` does, for many jobs with their old and new states."""
    ended = [job_id for job_id, _, to in moves if to in JOB_TERMINAL]
    pause_changed = [
        job_id for job_id, *states in moves if JobState.PAUSED in states and job_id not in ended
    ]
    if ended:
        await conn.execute(delete(queue).where(among(_c.job_id, ended)))
    if pause_changed:
        none = {"admitted_at": None, "waits_since": None, "position": None, "region": ""}
        statement = update(queue).where(among(_c.job_id, pause_changed))
        await conn.execute(statement.values(**none, cores=0, code=WaitReason.PENDING, why=""))
    if ended or pause_changed:
        await notify.notify(conn, TOPIC)


async def waiting(conn: AsyncConnection) -> dict[str, tuple[QueuedJob, WrittenStanding]]:
    """Return every queued job by id, and its standing as last written."""
    job_columns = (_c.job_id, _c.project_id, _c.priority, _c.waits_since, _c.gpus, _c.wants)
    standing_columns = (_c.position, _c.code, _c.why)
    queued = {}
    for row in await conn.execute(
        select(*job_columns, *standing_columns).where(_c.waits_since.is_not(None))
    ):
        job_id, project_id, priority, since, gpus, wants, *before = row
        job = QueuedJob(
            job_id=job_id,
            project_id=project_id,
            priority=_PRIORITIES[priority],
            since=since,
            gpus=gpus,
            wants=_region_requests(tuple((region, cores) for region, cores in wants)),
        )
        queued[job_id] = (job, WrittenStanding(*before))
    return queued


async def has_waiting(conn: AsyncConnection) -> bool:
    """Return whether any job is queued."""
    query = select(literal(1)).where(_c.waits_since.is_not(None)).limit(1)
    return (await conn.execute(query)).scalar_one_or_none() is not None


async def admitted_usage(
    conn: AsyncConnection, project_ids: Collection[str] | None = None
) -> dict[str, tuple[int, int]]:
    """Return the numbers of admitted jobs and of their GPUs by project; None: all projects."""
    columns = (_c.project_id, func.count(), func.coalesce(func.sum(_c.gpus), 0))
    query = select(*columns).where(_c.admitted_at.is_not(None)).group_by(_c.project_id)
    if project_ids is not None:
        query = query.where(_c.project_id.in_(project_ids))
    return {project_id: (many, gpus) for project_id, many, gpus in await conn.execute(query)}


async def admit(conn: AsyncConnection, admitted: Sequence[AdmittedJob], now: datetime) -> None:
    """Admit these jobs, wake their reconcilers, and add an event to each."""
    if not admitted:
        return
    ids = [a.job_id for a in admitted]
    statement = update(jobs).where(jobs.c.id.in_(ids))
    await conn.execute(
        statement.values(due_at=func.least(jobs.c.due_at, now), hints=jobs.c.hints + 1)
    )
    rows = {"regions": [a.region for a in admitted], "cores": [a.cores for a in admitted]}
    await conn.execute(_ADMIT, {"ids": ids, "now": now, **rows})
    await _add_events(conn, "job.admitted", dict.fromkeys(ids, "Its turn has come"), now)
    await notify.notify(conn, notify.DUE)


async def write_standings(
    conn: AsyncConnection, standings: Sequence[WaitingJob], now: datetime
) -> None:
    """Write the queue standings that users see, and raise the jobs' versions."""
    if not standings:
        return
    ids = [t.job_id for t in standings]
    await _raise_versions(conn, ids, now)
    members: dict[str, list[Any]] = {"positions": [t.position for t in standings]}
    members |= {"codes": [str(t.code) for t in standings], "whys": [t.why for t in standings]}
    await conn.execute(_WRITE_STANDINGS, {"ids": ids, **members})


async def note_waits(conn: AsyncConnection, reasons: Mapping[str, str], now: datetime) -> None:
    """Add an event to each of these jobs that it began to wait, and why."""
    await _add_events(conn, "job.waits", {i: f"It waits: {why}" for i, why in reasons.items()}, now)


async def _add_events(
    conn: AsyncConnection, code: str, messages: Mapping[str, str], now: datetime
) -> None:
    """Add one event to each of these jobs."""
    if messages:
        rows = [
            Event(
                id=new_id("ftevent", now),
                job_id=job_id,
                attempt_id=None,
                at=now,
                level="info",
                code=code,
                message=message,
                data=None,
            )
            for job_id, message in messages.items()
        ]
        await _raise_versions(conn, messages, now)  # locks the jobs: events are dated in order
        await add_all(conn, rows)


async def _raise_versions(conn: AsyncConnection, job_ids: Iterable[str], now: datetime) -> None:
    parameters = {"ids": list(job_ids), "now": now, "channel": notify.CHANNEL}
    await conn.execute(_RAISE_VERSIONS, parameters)


@lru_cache(maxsize=10_000)
def _region_requests(pairs: tuple[tuple[str, int], ...]) -> tuple[RegionRequest, ...]:
    """Return the requests as shared objects: thousands of jobs have one of a few."""
    return tuple(RegionRequest(region=region, cores=cores) for region, cores in pairs)
