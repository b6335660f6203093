"""Read the facts for decisions on many attempts at once: nodes, generations, the job.

Written in SQL: after an eviction thousands of attempts wait for it.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.attempts import attempts, generations, nodes
from service.db.attempts.attempts import AttemptRow
from service.db.attempts.generations import OpenedGeneration
from service.db.jobs import events
from service.db.jobs.events import Event
from service.db.storage import checkpoints
from service.domain.lifecycle.attempt import Attempt
from service.domain.lifecycle.node import NodeRecord
from service.domain.lifecycle.oom_fallback import OomFallback
from trainer.contract import Generation, Rung

# `short` is the step before memory ran out in the job's newest generation, of any attempt. Codes of
# events about help are literals, not parameters: their index is partial.
_JOBS = text("""
select j.id, j.cancel_requested_at, j.pause_requested_at, j.over_budget_at, j.moves_since,
  j.returns_since, j.trainer_errors, j.terms ->> 'budget' is not null as has_budget,
  p.elastic, p.global_batch, p.micro_batch, p.processes_per_node,
  cast(p.recipe ->> 'gradient_checkpointing' as boolean) as checkpointing,
  (select max(cast(o ->> 'seconds_per_step_p90' as float)) from jsonb_array_elements(p.options) o)
    as step_p90,
  (select max(cast(o ->> 'save_seconds' as float)) from jsonb_array_elements(p.options) o)
    as save_seconds,
  committed.at as committed_at, newest.content as newest, short.step as short_step,
  help.id as help_id, help.attempt_id, help.at, help.level, help.code, help.message, help.data
from jobs j
cross join lateral jsonb_to_record(j.plan)
  as p (elastic jsonb, global_batch int, micro_batch int, processes_per_node int, recipe jsonb,
    options jsonb)
left join lateral (
  select at from events where job_id = j.id and code = 'checkpoint.committed'
  order by seq desc limit 1
) committed on true
left join lateral (
  select * from events
  where job_id = j.id and code in ('attempt.needs_help', 'attempt.help_over')
  order by seq desc limit 1
) help on true
left join lateral (
  select number, attempt_id, content from generations where job_id = j.id
  order by number desc limit 1
) newest on true
left join lateral (
  select max(step) as step from nodes
  where attempt_id = newest.attempt_id and generation = newest.number and out_of_memory
) short on true
where j.id = any(:ids)
""")

# Selects each attempt's newest generation, and those that loaded the checkpoint that is still the
# newest. Columns are named: prepared statements survive a migration that adds a column.
_GENERATIONS = text("""
select g.attempt_id, g.content, g.opened_at, g.halted_at, g.halt_kind, g.halt_reason, g.lost_steps,
  g.content #>> '{checkpoint,path}' is not distinct from a.newest as same
from unnest(cast(:ids as text[]), cast(:newest as text[])) as a (id, newest)
join generations g on g.attempt_id = a.id
where g.content #>> '{checkpoint,path}' is not distinct from a.newest
  or g.number = (select max(number) from generations where attempt_id = a.id)
order by g.number
""")


@dataclass(frozen=True, kw_only=True)
class AttemptInputs:
    """Facts about one attempt that its decision needs."""

    attempt: Attempt  # with its job's requests
    records: list[NodeRecord]  # every node that ever registered for it
    newest_generation: OpenedGeneration | None  # the attempt's newest generation
    same_checkpoint: list[Generation]  # its generations that loaded the newest checkpoint
    last_generation: Generation | None  # the job's newest, of any attempt
    oom_fallback: OomFallback
    committed_at: datetime | None  # when we learnt of the job's newest checkpoint
    help_event: Event | None  # the job's newest event about help
    has_budget: bool  # the job has one of its own
    retained: Mapping[str, str]  # path -> why, of the job's checkpoints that exist


async def read_inputs(
    conn: AsyncConnection, requests: Sequence[tuple[AttemptRow, str | None]]
) -> dict[str, AttemptInputs]:
    """Return the facts of each attempt, by id.

    ``requests``: attempts, each with the path of the newest checkpoint in its HEAD, if any.
    """
    ids = [row.id for row, _ in requests]
    job_ids = list({row.job_id for row, _ in requests})
    about = {r["id"]: r for r in (await conn.execute(_JOBS, {"ids": job_ids})).mappings()}
    records = await nodes.of_attempts(conn, ids)
    opened, same = await _generations(conn, ids, [newest for _, newest in requests])
    retained = await checkpoints.retained_paths(conn, job_ids)
    return {
        row.id: _facts(
            row, about[row.job_id], records[row.id], opened.get(row.id), same[row.id], retained
        )
        for row, _ in requests
    }


def _facts(
    row: AttemptRow,
    job: RowMapping,
    records: list[NodeRecord],
    opened: OpenedGeneration | None,
    same: list[Generation],
    retained: Mapping[str, Mapping[str, str]],
) -> AttemptInputs:
    last = Generation.from_dict(job["newest"]) if job["newest"] else None
    return AttemptInputs(
        attempt=attempts.snapshot(row, job),
        records=records,
        newest_generation=opened,
        same_checkpoint=same,
        last_generation=last,
        oom_fallback=_oom_fallback(job, last),
        committed_at=job["committed_at"],
        help_event=_help_event(row.job_id, job),
        has_budget=job["has_budget"],
        retained=retained.get(row.job_id, {}),
    )


def _oom_fallback(job: RowMapping, last: Generation | None) -> OomFallback:
    micro_batch, checkpointing = job["micro_batch"], job["checkpointing"]
    is_planned = micro_batch is not None and checkpointing is not None
    planned = Rung(micro_batch=micro_batch, gradient_checkpointing=checkpointing)
    short = job["short_step"]
    return OomFallback(
        planned=planned if is_planned else None,
        rung=last.rung if last else None,
        oom_step=None if short is None else short + 1,
    )


def _help_event(job_id: str, job: RowMapping) -> Event | None:
    if job["help_id"] is None:
        return None
    values: dict[str, Any] = {
        name: job[name] for name in ("attempt_id", "at", "level", "code", "message", "data")
    }
    return events.Event(id=job["help_id"], job_id=job_id, **values)


async def _generations(
    conn: AsyncConnection, ids: Sequence[str], newest: Sequence[str | None]
) -> tuple[dict[str, OpenedGeneration], dict[str, list[Generation]]]:
    opened: dict[str, OpenedGeneration] = {}
    same: dict[str, list[Generation]] = defaultdict(list)
    for row in await conn.execute(_GENERATIONS, {"ids": list(ids), "newest": list(newest)}):
        opened[row.attempt_id] = generations.parse_row(row)  # rows are ordered: the newest stays
        if row.same:
            same[row.attempt_id].append(opened[row.attempt_id].generation)
    return opened, same
