"""Read and write heartbeats in batches: a large service receives a thousand a second."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.attempts.nodes import RECORD_COLUMNS, record
from service.db.core import locks
from service.db.core.notify import CHANNEL
from service.db.jobs.job_versions import topic
from service.db.jobs.step_metrics import RECENT
from service.db.schema import tables
from service.domain.lifecycle.node import NodeRecord
from trainer.contract import DirectiveKind, Generation

# Jobs are locked in one order, and last of all: no deadlock.
_PROGRESS = text(f"""
with given as (
  select * from unnest(
    cast(:ids as text[]), cast(:generations as int[]), cast(:steps as int[]),
    cast(:changes as jsonb[])
  ) as g (id, generation, step, changes)
)
update jobs j set
  progress = j.progress || g.changes || jsonb_build_object(
    'seconds_per_step', p.tenths[2], 'tokens_per_second', p.tokens, 'steps_measured', p.steps,
    'seconds_per_step_p10', p.tenths[1], 'seconds_per_step_p90', p.tenths[3]
  ),
  version = j.version + 1,
  updated_at = greatest(j.updated_at, :now)
from given g
cross join lateral (
  select percentile_cont(array[0.1, 0.5, 0.9]) within group (order by m.seconds) as tenths,
    count(*) as steps, sum(m.tokens) / nullif(sum(m.seconds), 0) as tokens
  from metrics m
  where m.job_id = g.id and m.generation = g.generation
    and m.step > g.step - {RECENT} and m.step <= g.step
) p
where j.id = g.id
returning pg_notify('{CHANNEL}', '{topic("")}' || j.id)
""")  # noqa: S608 - constants

# The generation is read only if the node has not received its start directive.
_STANDING_DIRECTIVES = text("""
select n.id, asked.after, n.epoch, n.directive_seq, n.directive_kind, n.directive_number,
  n.registered_at, a.stop_by, a.state in ('terminating', 'ended') as is_attempt_over, newest.content
from unnest(cast(:ids as text[]), cast(:afters as int[])) as asked (id, after)
join nodes n on n.id = asked.id
join attempts a on a.id = n.attempt_id
left join lateral (
  select number, content from generations where attempt_id = a.id order by number desc limit 1
) newest on n.directive_kind = 'start' and n.directive_seq > asked.after
  and newest.number = n.directive_number
""")

# Two statements: the second sees what was committed while the first waited for a node's lock.
_LOCK_NODES = text("select id from nodes where id = any(:ids) order by id for update")
# Columns are named: prepared statements survive a migration that adds a column.
_LOCKED_NODES = text(f"""
select {", ".join(f"n.{c.name}" for c in RECORD_COLUMNS)},
  a.job_id, a.number as attempt_number, a.stop_by, a.region, a.vm_size,
  a.state in ('terminating', 'ended') as is_attempt_over,
  (select max(number) from generations where attempt_id = a.id) as current
from nodes n join attempts a on a.id = n.attempt_id
where n.id = any(:ids)
""")  # noqa: S608 - names of columns
_SAVE = text("""
update nodes n set heartbeat_seq = g.seq, heard_at = :now, phase = g.phase,
  generation = g.generation, step = g.step, free_port = g.port, evicting = g.evicting,
  out_of_memory = g.short, non_retryable = g.non_retryable, unhealthy_at = g.unhealthy_at,
  error = g.error
from unnest(
  cast(:ids as text[]), cast(:seqs as int[]), cast(:phases as text[]), cast(:generations as int[]),
  cast(:steps as int[]), cast(:ports as int[]), cast(:evicting as boolean[]),
  cast(:short as boolean[]), cast(:non_retryable as boolean[]), cast(:unhealthy as float8[]),
  cast(:errors as text[])
) as g (id, seq, phase, generation, step, port, evicting, short, non_retryable, unhealthy_at, error)
where n.id = g.id
""")


@dataclass(frozen=True, kw_only=True)
class StandingDirective:
    """The standing directive of a node, with all that the answer to its poll needs."""

    epoch: int
    directive_seq: int
    kind: DirectiveKind
    number: int
    registered_at: datetime
    stop_by: datetime | None
    is_attempt_over: bool
    generation: Generation | None  # to start, if new to the node; None: it was superseded


@dataclass(frozen=True, kw_only=True)
class LockedNode:
    """A node whose heartbeat is handled, with its attempt; its row is locked."""

    record: NodeRecord
    job_id: str
    attempt_number: int
    stop_by: datetime | None
    is_attempt_over: bool
    current: int  # number of the attempt's newest generation; 0: none
    region: str
    vm_size: str


@dataclass(frozen=True, kw_only=True)
class GenerationProgress:
    """Progress of a job in its current generation."""

    job_id: str
    generation: int
    step: int
    changes: Mapping[str, Any]


async def record_progress(
    conn: AsyncConnection, jobs: Sequence[GenerationProgress], now: datetime
) -> None:
    """Record progress of jobs, each given once; raise their versions and wake listeners."""
    if not jobs:
        return
    parameters: dict[str, list[Any]] = {
        "ids": [p.job_id for p in jobs],
        "generations": [p.generation for p in jobs],
        "steps": [p.step for p in jobs],
        "changes": [json.dumps(p.changes) for p in jobs],
    }
    await locks.before_writing(conn, tables.jobs, parameters["ids"])
    await conn.execute(_PROGRESS, parameters | {"now": now})


async def lock_nodes(conn: AsyncConnection, ids: Sequence[str]) -> dict[str, LockedNode]:
    """Lock nodes in one order; return them by id, without unknown ones."""
    await conn.execute(_LOCK_NODES, {"ids": list(ids)})
    rows = await conn.execute(_LOCKED_NODES, {"ids": list(ids)})
    return {
        r.id: LockedNode(
            record=record(r),
            job_id=r.job_id,
            attempt_number=r.attempt_number,
            stop_by=r.stop_by,
            is_attempt_over=r.is_attempt_over,
            current=r.current or 0,
            region=r.region,
            vm_size=r.vm_size,
        )
        for r in rows
    }


async def save(
    conn: AsyncConnection, reports: Sequence[tuple[NodeRecord, str]], now: datetime
) -> None:
    """Write new records of nodes that the caller has locked, each with its last error."""
    records = [record for record, _ in reports]
    parameters = {
        "ids": [r.node_id for r in records],
        "seqs": [r.heartbeat_seq for r in records],
        "phases": [str(r.phase) for r in records],
        "generations": [r.generation for r in records],
        "steps": [r.step for r in records],
        "ports": [r.free_port for r in records],
        "evicting": [r.evicting for r in records],
        "short": [r.out_of_memory for r in records],
        "non_retryable": [r.non_retryable for r in records],
        "unhealthy": [r.unhealthy_at for r in records],
        "errors": [error for _, error in reports],
    }
    await conn.execute(_SAVE, parameters | {"now": now})


async def standing_directives(
    conn: AsyncConnection, requests: Sequence[tuple[str, int]]
) -> dict[tuple[str, int], StandingDirective]:
    """Return directives by node and the last directive number that it has, for known nodes."""
    parameters = {"ids": [node for node, _ in requests], "afters": [after for _, after in requests]}
    rows = await conn.execute(_STANDING_DIRECTIVES, parameters)
    return {
        (r.id, r.after): StandingDirective(
            epoch=r.epoch,
            directive_seq=r.directive_seq,
            kind=DirectiveKind(r.directive_kind),
            number=r.directive_number,
            registered_at=r.registered_at,
            stop_by=r.stop_by,
            is_attempt_over=r.is_attempt_over,
            generation=Generation.from_dict(r.content) if r.content else None,
        )
        for r in rows
    }
