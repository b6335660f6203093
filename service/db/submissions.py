"""A new job with its first event: one statement, so that a request to train is one round trip.

All that must hold at this very moment is looked at by the statement itself: the files are there and
stay until the job is, and an idempotency key is new. What the statement was made of may be older.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic_core import to_json

from service.db import notices, statements
from service.db.jobs import JobRow
from service.db.statements import Conn
from service.domain.ids import new_id

# The event is the job's first news, so the job begins with version 2. A job is there, and locked,
# before its event has a number.
_ADD = """
with turn as materialized (
  select pg_advisory_xact_lock(hashtextextended(%(turn)s, 0))
), held as materialized (
  select f.id from files f, turn
  where f.id = any(%(files)s::text[]) and f.project_id = %(project)s and f.deleted_at is null
  for share of f
), job as (
  insert into jobs (id, project_id, api_key_id, idempotency_key, body_sha256, request, model,
    training_file, validation_file, plan, total_steps, state, reason, terms, version,
    since, created_at, updated_at, due_at)
  select %(id)s, %(project)s, %(api_key)s, %(key)s::text, %(body_sha256)s, %(request)s::jsonb,
    %(model)s, %(training_file)s, %(validation_file)s::text, %(plan)s::jsonb,
    %(total_steps)s::int, %(state)s, %(reason)s, %(terms)s::jsonb, 2, t.now, t.now, t.now, t.now
  from (select %(now)s::timestamptz) t (now)
  where (select count(*) from held) = cardinality(%(files)s::text[])
  on conflict (project_id, idempotency_key) where idempotency_key is not null do nothing
  returning id, created_at
), told as (
  insert into events (id, job_id, at, level, code, message)
  select %(event)s, id, created_at, 'info', 'job.created', %(message)s from job
  returning job_id
)
select array(select id from held) held, (
  select count(pg_notify(%(channel)s, topic))
  from told, unnest(array[%(due)s, 'job:' || job_id]) topic
) notices
"""
VERSION = 2  # of a job that was just made
_AS_IT_IS = (
    *("id", "body_sha256", "model", "training_file", "validation_file", "total_steps"),
    *("state", "reason"),
)


@dataclass(frozen=True, kw_only=True)
class Added:
    """What came of it."""

    is_new: bool  # else nothing was written
    missing: frozenset[str]  # files; if none is, the idempotency key was used before


async def add(conn: Conn, row: JobRow, turn: str, message: str) -> Added:
    """Write a new job and wake a reconciler, once it is our turn and its files are there.

    Whoever takes ``turn`` afterwards sees the job. ``conn`` may be one of ``Singles``.
    """
    files = _files(row)
    given = {
        "turn": turn,
        "files": files,
        "project": row.project_id,
        "api_key": row.api_key_id,
        "key": row.idempotency_key,
        "request": to_json(row.request).decode(),
        "plan": to_json(row.plan).decode(),
        "terms": to_json(row.terms).decode(),
        "now": row.created_at,
        "event": new_id("ftevent", row.created_at),
        "message": message,
        "channel": notices.CHANNEL,
        "due": notices.DUE,
        **{name: getattr(row, name) for name in _AS_IT_IS},
    }
    done = await statements.one(conn, _ADD, given)
    return Added(is_new=done.notices > 0, missing=frozenset(files).difference(done.held))


def _files(row: JobRow) -> Sequence[str]:
    """Each once."""
    return list(dict.fromkeys(filter(None, (row.training_file, row.validation_file))))
