"""Read and write generations: rows are written once, only an order to halt is added later."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any

from sqlalchemy import Row, func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.core import locks
from service.db.core.notify import CHANNEL
from service.db.jobs.job_versions import topic
from service.db.jobs.step_metrics import RECENT
from service.db.schema.tables import generations, jobs
from service.domain.planning.checkpoint_interval import Cadence, CheckpointInterval, SaveHistory
from trainer.contract import DirectiveKind, Generation, SaveCost

_HALT = text("""
with given as (
  select * from unnest(
    cast(:jobs as text[]), cast(:numbers as int[]), cast(:kinds as text[]), cast(:reasons as text[])
  ) as h (job_id, number, kind, reason)
), mine as (
  select g.job_id, g.number, h.kind, h.reason
  from generations g join given h on h.job_id = g.job_id and h.number = g.number
  where g.halted_at is null or (g.halt_kind <> h.kind and h.kind = :stop)
  order by g.job_id, g.number for no key update of g
)
update generations g set halted_at = :now, halt_kind = mine.kind, halt_reason = mine.reason
from mine where g.job_id = mine.job_id and g.number = mine.number returning g.job_id
""")


# Lost steps are those that the generation before had done, as far as its nodes reported, beyond the
# checkpoint that the new one loads.
_BEGIN = text(f"""
with given as (
  select * from unnest(
    cast(:jobs as text[]), cast(:numbers as int[]), cast(:attempts as text[]),
    cast(:contents as jsonb[]), cast(:starts as int[]), cast(:errors as int[]),
    cast(:saves as jsonb[])
  ) as g (job_id, number, attempt_id, content, start, errors, saves)
), lost as (
  select g.job_id, greatest(coalesce(greatest(
    (select max(m.step) from metrics m where m.job_id = g.job_id and m.generation = l.number),
    (select max(n.step) from nodes n where n.attempt_id = l.attempt_id and n.generation = l.number)
  ), 0) - g.start, 0) as steps, l.machines * (
    select avg(m.seconds) from metrics m
    where m.job_id = g.job_id and m.generation = l.number and m.step > g.start - {RECENT}
  ) as seconds, l.capacity_type
  from given g left join lateral (
    select p.number, p.attempt_id, a.capacity_type,
      jsonb_array_length(p.content -> 'members') as machines
    from generations p join attempts a on a.id = p.attempt_id
    where p.job_id = g.job_id order by p.number desc limit 1
  ) l on true
), begun as (
  insert into generations (job_id, number, attempt_id, opened_at, content, lost_steps)
  select g.job_id, g.number, g.attempt_id, :now, g.content, lost.steps
  from given g join lost on lost.job_id = g.job_id
)
update jobs j set
  progress = j.progress || g.saves || jsonb_build_object('step', g.start),
  lost_steps = j.lost_steps + lost.steps,
  trainer_errors = j.trainer_errors + g.errors,
  version = j.version + 1,
  updated_at = greatest(j.updated_at, :now)
from given g join lost on lost.job_id = g.job_id
where j.id = g.job_id
returning pg_notify('{CHANNEL}', '{topic("")}' || j.id), lost.steps,
  lost.steps * lost.seconds as seconds, lost.capacity_type
""")  # noqa: S608 - constants


# Selects the plan's option that the attempt runs on, the job's measurements and its evictions.
# A generation follows an eviction if it lacks a machine of the one before. The eviction notice was
# unanswered if steps were lost.
_SAVES = text("""
select a.id, o.option, j.progress, lives.evictions, after.evictions as judged, after.unanswered
from attempts a
join jobs j on j.id = a.job_id
cross join lateral (
  select option from jsonb_array_elements(j.plan -> 'options') option
  where option ->> 'region' = a.region and option ->> 'vm_size' = a.vm_size
    and option ->> 'capacity_type' = a.capacity_type and option ->> 'engine' = a.engine
    and jsonb_typeof(option -> 'cadence') = 'object'
  limit 1
) o
cross join lateral (
  select count(*) filter (where outcome = 'evicted') + coalesce(sum(survived), 0) as evictions
  from attempts where job_id = j.id
) lives
cross join lateral (
  select count(*) as evictions, count(*) filter (where g.lost_steps > 0) as unanswered
  from generations g
  cross join lateral (
    select attempt_id, content from generations
    where job_id = g.job_id and number < g.number order by number desc limit 1
  ) p
  join attempts b on b.id = p.attempt_id
  where g.job_id = j.id and (
    (p.attempt_id <> g.attempt_id and b.outcome = 'evicted')
    or (p.attempt_id = g.attempt_id and b.survived > 0 and exists (
      select m -> 'vm_id' from jsonb_array_elements(p.content -> 'members') m except
      select m -> 'vm_id' from jsonb_array_elements(g.content -> 'members') m
    ))
  )
) after
where a.id = any(:ids)
""")


@dataclass(frozen=True)
class LostWork:
    """Steps to repeat, and the machine time that they had taken."""

    steps: int
    machine_seconds: float  # 0 where no step was measured
    capacity_type: str  # of the machines that trained them


@dataclass(frozen=True, kw_only=True)
class OpenedGeneration:
    """A generation, and its order to halt, if there is one."""

    generation: Generation
    opened_at: datetime
    halted_at: datetime | None
    halt_kind: DirectiveKind | None
    halt_reason: str
    lost_steps: int  # of the generation before, done again by this one


async def newest(conn: AsyncConnection, job_id: str) -> Generation | None:
    """Return the job's newest generation, of any attempt; None before the first."""
    query = select(generations.c.content).where(generations.c.job_id == job_id)
    query = query.order_by(generations.c.number.desc()).limit(1)
    content = (await conn.execute(query)).scalar_one_or_none()
    return Generation.from_dict(content) if content else None


async def newest_number(conn: AsyncConnection, job_id: str) -> int:
    """Return the number of the job's newest generation, of any attempt; 0 before the first.

    Numbers grow, and may have gaps: generations that a restored database does not know.
    """
    query = select(func.max(generations.c.number)).where(generations.c.job_id == job_id)
    return (await conn.execute(query)).scalar_one() or 0


async def current(conn: AsyncConnection, attempt_id: str) -> OpenedGeneration | None:
    """Return the attempt's newest generation; None before the first."""
    query = (
        select(generations)
        .where(generations.c.attempt_id == attempt_id)
        .order_by(generations.c.number.desc())
        .limit(1)
    )
    row = (await conn.execute(query)).one_or_none()
    return parse_row(row) if row else None


async def of_job(conn: AsyncConnection, job_id: str) -> list[OpenedGeneration]:
    """Return every generation of the job, oldest first."""
    query = select(generations).where(generations.c.job_id == job_id)
    return [parse_row(row) for row in await conn.execute(query.order_by(generations.c.number))]


async def of_attempt(conn: AsyncConnection, attempt_id: str) -> list[OpenedGeneration]:
    """Return every generation of the attempt, oldest first."""
    query = select(generations).where(generations.c.attempt_id == attempt_id)
    return [parse_row(row) for row in await conn.execute(query.order_by(generations.c.number))]


async def begin_all(
    conn: AsyncConnection,
    generations: Sequence[Generation],
    after_error: Collection[str],
    now: datetime,
    saves: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> list[LostWork]:
    """Write new generations, one per job, and count lost steps; return what jobs lost.

    A number that is taken violates the primary key. Jobs in ``after_error`` get one more trainer
    error. ``saves``: by job, what its progress keeps of its checkpoint interval. Locks jobs in one
    order. A job that lost no step is not in the result.
    """
    parameters: dict[str, list[Any]] = {
        "jobs": [g.job_id for g in generations],
        "numbers": [g.number for g in generations],
        "attempts": [g.attempt_id for g in generations],
        "contents": [json.dumps(g.to_plain()) for g in generations],
        "starts": [g.checkpoint.step if g.checkpoint else 0 for g in generations],
        "errors": [int(g.job_id in after_error) for g in generations],
        "saves": [json.dumps(saves.get(g.job_id, {})) for g in generations],
    }
    await locks.before_writing(conn, jobs, parameters["jobs"])
    rows = await conn.execute(_BEGIN, parameters | {"now": now})
    return [LostWork(r.steps, r.seconds or 0.0, r.capacity_type) for r in rows if r.steps]


async def save_histories(
    conn: AsyncConnection, attempt_ids: Sequence[str]
) -> dict[str, SaveHistory]:
    """Return each attempt's save history; attempts whose interval the user set are left out."""
    rows = await conn.execute(_SAVES, {"ids": list(attempt_ids)})
    return {row.id: _save_history(row) for row in rows}


def _save_history(row: Row[Any]) -> SaveHistory:
    option, progress = row.option, row.progress
    cost, pace = progress.get("save_cost"), progress.get("seconds_per_step") or 0.0
    cadence = Cadence.from_dict(option["cadence"])
    return SaveHistory(
        planned=CheckpointInterval(seconds=option["checkpoint_seconds"], cadence=cadence),
        nodes=option["nodes"],
        cost=SaveCost.from_dict(cost) if cost else None,
        evictions=int(row.evictions),
        judged=row.judged,
        unanswered=row.unanswered,
        trained_hours=pace * progress.get("step", 0) / 3600,
    )


async def mark_halted(
    conn: AsyncConnection, halts: Sequence[tuple[Generation, DirectiveKind, str]], now: datetime
) -> set[str]:
    """Record orders to halt generations, with kind and reason; return the jobs with a new order.

    STOP replaces CHECKPOINT_AND_STOP, never the other way round.
    """
    parameters = {
        "jobs": [generation.job_id for generation, *_ in halts],
        "numbers": [generation.number for generation, *_ in halts],
        "kinds": [str(kind) for _, kind, _ in halts],
        "reasons": [reason for *_, reason in halts],
    }
    done = await conn.execute(_HALT, parameters | {"now": now, "stop": str(DirectiveKind.STOP)})
    return set(done.scalars())


def parse_row(row: Row[Any]) -> OpenedGeneration:
    """Return the generation that a row of the table holds."""
    return OpenedGeneration(
        generation=Generation.from_dict(row.content),
        opened_at=row.opened_at,
        halted_at=row.halted_at,
        halt_kind=DirectiveKind(row.halt_kind) if row.halt_kind else None,
        halt_reason=row.halt_reason or "",
        lost_steps=row.lost_steps,
    )
