"""Read and write rank 0's metrics, one row per training step; a repeated step overwrites it."""

import json
import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import exists, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.schema.tables import metrics
from trainer.contract import StepMetrics

RECENT = 50  # steps for the current speed
_SHOWN = [c for c in metrics.c if c.name != "job_id"]
_NUMBERS = [c.name for c in metrics.c if c.name not in ("job_id", "step")]

# Drops steps beyond the job's last one, so that a faulty node cannot fill the table. All rows are
# one parameter: a statement has room for 65,535.
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

# Figures by which `thinned_series` can choose the rows of a stretch.
FIGURES = tuple(n for n in _NUMBERS if n not in ("generation", "slowest_rank", "skipped"))
# PostgreSQL orders NaN above every number, so a loss of NaN is shown like a spike.
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
class StepRange:
    """A range of steps, both ends included."""

    from_step: int
    to_step: int


async def add(
    conn: AsyncConnection, job_id: str, generation: int, rows: Sequence[StepMetrics]
) -> None:
    """Write a batch of one job; repeated rows overwrite, unless of an older generation."""
    await add_all(conn, [(job_id, generation, rows)])


async def add_all(
    conn: AsyncConnection, batches: Sequence[tuple[str, int, Sequence[StepMetrics]]]
) -> None:
    """Write batches of (job, generation, rows) in one order, so that none deadlock."""
    rows = {
        (job_id, m.step): _row(job_id, generation, m)
        for job_id, generation, batch in batches
        for m in batch
    }
    if rows:
        await conn.execute(_ADD, {"rows": json.dumps(list(rows.values()))})


async def series(
    conn: AsyncConnection, job_id: str, steps: StepRange, *, limit: int
) -> list[dict[str, Any]]:
    """Return the first ``limit`` rows of the range, in order of steps."""
    m = metrics.c
    query = select(*_SHOWN).where(
        m.job_id == job_id, m.step.between(steps.from_step, steps.to_step)
    )
    rows = await conn.execute(query.order_by(m.step).limit(limit))
    return [dict(r) for r in rows.mappings()]


async def thinned_series(
    conn: AsyncConnection, job_id: str, steps: StepRange, *, max_points: int, figure: str = "loss"
) -> list[dict[str, Any]]:
    """Return at most ``max_points`` measured rows of the range, in order of steps.

    Returns all rows if they are few. Else it cuts the range into stretches of one length and takes
    the rows with the lowest and highest ``figure`` of each, and its last one with a validation
    loss. The last row of the range is included. A spike is never averaged away.
    """
    if figure not in FIGURES:
        raise ValueError(figure)
    first = await series(conn, job_id, steps, limit=max_points + 1)
    if len(first) <= max_points:
        return first
    columns = ", ".join(c.name for c in _SHOWN)
    query = text(_THIN.format(figure=figure, shown=columns))
    parameters = vars(steps) | {"job": job_id, "stretches": max((max_points - 1) // 3, 1)}
    rows = [dict(r) for r in (await conn.execute(query, parameters)).mappings()]
    return rows[-max_points:]


async def has_figure(conn: AsyncConnection, job_id: str, figure: str) -> bool:
    """Return whether the figure was ever measured, which depends on the job's method."""
    query = select(exists().where(metrics.c.job_id == job_id, metrics.c[figure].is_not(None)))
    return bool((await conn.execute(query)).scalar_one())


async def all_of(conn: AsyncConnection, job_id: str) -> AsyncIterator[dict[str, Any]]:
    """Yield every row in order of steps, in constant memory."""
    query = select(*_SHOWN).where(metrics.c.job_id == job_id).order_by(metrics.c.step)
    async with conn.stream(query) as result:
        async for row in result.mappings():
            yield dict(row)


def _row(job_id: str, generation: int, step: StepMetrics) -> dict[str, Any]:
    values = {n: _plain(value) for n, value in asdict(step).items() if n in metrics.c}
    seconds = round(step.seconds, 9)  # the speed, tokens by seconds, must fit into a number
    return values | {"job_id": job_id, "generation": generation, "seconds": seconds}


def _plain(value: object) -> object:
    """Convert a non-finite float to text, which PostgreSQL parses: JSON cannot hold it."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
