"""What a user wishes of a job (its end, a pause, that it goes on) and its event: one statement."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from service.db import notices, statements
from service.db.statements import Conn
from service.domain.ids import new_id
from service.domain.states import JOB_TERMINAL


class Wish(StrEnum):
    """As the columns that say since when are named."""

    CANCEL = "cancel_requested_at"
    PAUSE = "pause_requested_at"


@dataclass(frozen=True, kw_only=True)
class Told:
    """The event of a wish, without what every event has."""

    code: str
    message: str
    data: Mapping[str, str]


# Locks the attempt that lives, of which a job has one at most (another may be terminating, to which
# no wish matters any more), then the job, which therefore asks how many were hinted: what nobody
# reads PostgreSQL does last. The job is locked before its event has a number.
_WISH = """
with hinted as (
  update attempts a set due_at = least(a.due_at, t.now), hints = a.hints + 1
  from jobs j, (select %(now)s::timestamptz) t (now)
  where j.id = %(job)s and j.project_id = %(project)s and {open}
    and a.job_id = j.id and a.state not in ('terminating', 'ended')
  returning a.id
), wished as (
  update jobs j set {column} = {value}, due_at = least(j.due_at, t.now), hints = j.hints + 1,
    version = j.version + 1, updated_at = greatest(j.updated_at, t.now)
  from (select %(now)s::timestamptz) t (now)
  where j.id = %(job)s and j.project_id = %(project)s and {open}
    and (select count(*) from hinted) >= 0
  returning j.id, j.updated_at
), told as (
  insert into events (id, job_id, at, level, code, message, data)
  select %(event)s, id, updated_at, 'info', %(code)s, %(message)s, %(data)s::jsonb from wished
  returning job_id
)
select count(pg_notify(%(channel)s, topic)) told
from told, unnest(array[%(due)s, 'job:' || job_id]) topic
"""


def _query(wish: Wish, *, back: bool) -> str:
    over = ", ".join(f"'{state}'" for state in sorted(JOB_TERMINAL))
    is_set = "is not null" if back else "is null"
    return _WISH.format(
        column=wish,
        value="null" if back else "t.now",
        open=f"j.state not in ({over}) and j.{wish} {is_set}",
    )


_SET = {wish: _query(wish, back=False) for wish in Wish}
_TAKEN_BACK = {wish: _query(wish, back=True) for wish in Wish}


async def write(
    conn: Conn,
    project_id: str,
    job_id: str,
    now: datetime,
    wish: Wish,
    told: Told,
    *,
    back: bool = False,
) -> bool:
    """Write the wish (or take it ``back``) with its event, and wake everybody.

    False, and nothing is written, where there is no such job, or one that is over, or that has the
    wish already. ``conn`` may be one of ``Singles``.
    """
    given = {
        "project": project_id,
        "job": job_id,
        "now": now,
        "event": new_id("ftevent", now),
        "code": told.code,
        "message": told.message,
        "data": json.dumps(told.data),
        "channel": notices.CHANNEL,
        "due": notices.DUE,
    }
    query = _TAKEN_BACK[wish] if back else _SET[wish]
    return bool((await statements.one(conn, query, given)).told)
