"""What rank 0 measured, one row per training step; a step done again overwrites itself."""

import json
import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import exists, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.schema.tables import metrics
from trainer.contract import StepMetrics

RECENT = 50  # steps that the present speed is taken from
_SHOWN = [c for c in metrics.c if c.name != "job_id"]
_NUMBERS = [c.name for c in metrics.c if c.name not in ("job_id", "step")]

# A node that tells of steps beyond the last one fills no table.
# However many there are, they are one value: a statement has room for 65,535.
_ADD = text(f"""
insert into metrics ({", ".join(c.name for c in metrics.c)})
select r.* from jsonb_to_recordset(cast(:rows as jsonb))
  as r ({", ".join(f"{c.name} {c.type.compile()}" for c in metrics.c)})
join jobs on jobs.id = r.job_id and r.step <= jobs.total_steps
order by r.job_id, r.step
on conflict (job_id, step) do update
set {", ".join(f"{name} = excluded.{name}" for name in _NUMBERS)}
where metrics.generation <= excluded.generation
""")  # noqa: S608 - names of columns

# Figures whose lowest and highest value a stretch of a thinned series shows.
FIGURES = tuple(n for n in _NUMBERS if n not in ("generation", "slowest_rank", "skipped"))
# PostgreSQL orders NaN above every number, so a loss that is none is shown like a spike.
_THIN = """
with span as (
  select min(step) low, max(step) high from metrics
  where job_id = :job and step between :from_step and :to_step
), stretches as (
  select (min(array[{figure}, step]::float8[]))[2] lowest,
    -(max(array[{figure}, -step]::float8[]))[2] highest,
    max(step) filter (where valid_loss is not null) validated
  from metrics cross join span
  where job_id = :job and step between span.low and span.high and {figure} is not null
  group by (step - span.low)::bigint * :stretches / (span.high - span.low + 1)
), chosen as (
  select unnest(array[lowest, highest, validated]) step from stretches
  union select high from span
)
select {shown} from metrics
where job_id = :job and step = any(array(select step::int from chosen where step is not null))
order by step
"""


@dataclass(frozen=True, kw_only=True)
class Steps:
    """A range of steps, both ends included."""

    from_step: int
    to_step: int


async def add(
    conn: AsyncConnection, job_id: str, generation: int, rows: Sequence[StepMetrics]
) -> None:
    """Keep a batch; sent twice it is kept once, and a newer generation's word wins."""
    await add_all(conn, [(job_id, generation, rows)])


async def add_all(
    conn: AsyncConnection, told: Sequence[tuple[str, int, Sequence[StepMetrics]]]
) -> None:
    """The same of many jobs: job, generation, rows; in one order everywhere, so no deadlock."""
    rows = {
        (job_id, m.step): _row(job_id, generation, m)
        for job_id, generation, batch in told
        for m in batch
    }
    if rows:
        await conn.execute(_ADD, {"rows": json.dumps(list(rows.values()))})


async def series(
    conn: AsyncConnection, job_id: str, steps: Steps, *, limit: int
) -> list[dict[str, Any]]:
    """Rows of the range in order of steps, the first ``limit`` of them."""
    m = metrics.c
    rows = select(*_SHOWN).where(m.job_id == job_id, m.step.between(steps.from_step, steps.to_step))
    found = await conn.execute(rows.order_by(m.step).limit(limit))
    return [dict(r) for r in found.mappings()]


async def thinned(
    conn: AsyncConnection, job_id: str, steps: Steps, *, max_points: int, figure: str = "loss"
) -> list[dict[str, Any]]:
    """At most ``max_points`` rows of the range, in order of steps; every row was measured so.

    Few rows are all shown. Else the range is cut into stretches of one length, and each shows the
    rows with its lowest and its highest ``figure``, and its last one with a validation loss. The
    last row of the range is shown as well. A spike is never averaged away.
    """
    if figure not in FIGURES:
        raise ValueError(figure)
    first = await series(conn, job_id, steps, limit=max_points + 1)
    if len(first) <= max_points:
        return first
    shown = ", ".join(c.name for c in _SHOWN)
    query = text(_THIN.format(figure=figure, shown=shown))
    given = vars(steps) | {"job": job_id, "stretches": max((max_points - 1) // 3, 1)}
    rows = [dict(r) for r in (await conn.execute(query, given)).mappings()]
    return rows[-max_points:]


async def has(conn: AsyncConnection, job_id: str, figure: str) -> bool:
    """Whether it was ever measured: it depends on the job's method."""
    query = select(exists().where(metrics.c.job_id == job_id, metrics.c[figure].is_not(None)))
    return bool((await conn.execute(query)).scalar_one())


async def all_of(conn: AsyncConnection, job_id: str) -> AsyncIterator[dict[str, Any]]:
    """Every row in order of steps, a few at a time: memory stays flat."""
    query = select(*_SHOWN).where(metrics.c.job_id == job_id).order_by(metrics.c.step)
    async with conn.stream(query) as found:
        async for row in found.mappings():
            yield dict(row)


def _row(job_id: str, generation: int, told: StepMetrics) -> dict[str, Any]:
    values = {n: _plain(value) for n, value in asdict(told).items() if n in metrics.c}
    seconds = round(told.seconds, 9)  # the speed, tokens by seconds, must fit into a number
    return values | {"job_id": job_id, "generation": generation, "seconds": seconds}


def _plain(value: object) -> object:
    """JSON has no word for a loss that is not a number; PostgreSQL reads Python's."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
