"""What rank 0 measured, one row per training step; a step done again overwrites itself."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import exists, func, select
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.tables import metrics
from trainer.contract import StepMetrics

RECENT = 50  # steps that the present speed is taken from
_SHOWN = [c for c in metrics.c if c.name != "job_id"]


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How fast the newest steps went."""

    seconds_per_step: float  # the median
    tokens_per_second: float | None
    steps_measured: int
    seconds_per_step_p10: float
    seconds_per_step_p90: float


async def add(
    conn: AsyncConnection, job_id: str, generation: int, rows: Sequence[StepMetrics]
) -> None:
    """Keep a batch; sent twice it is kept once, and a newer generation's word wins."""
    by_step = {m.step: m for m in rows}
    values = [
        {k: v for k, v in asdict(m).items() if k in metrics.c}
        | {"job_id": job_id, "generation": generation}
        for _, m in sorted(by_step.items())  # one order everywhere: no deadlock
    ]
    if not values:
        return
    statement = upsert(metrics).values(values)
    new = {c: statement.excluded[c] for c in values[0] if c not in ("job_id", "step")}
    await conn.execute(
        statement.on_conflict_do_update(
            index_elements=["job_id", "step"],
            set_=new,
            where=metrics.c.generation <= statement.excluded.generation,
        )
    )


async def pace(conn: AsyncConnection, job_id: str, generation: int, step: int) -> Pace:
    """How fast this generation went up to ``step``, which it has measured."""
    m = metrics.c
    query = select(
        func.percentile_cont(0.1).within_group(m.seconds),
        func.percentile_cont(0.5).within_group(m.seconds),
        func.percentile_cont(0.9).within_group(m.seconds),
        func.sum(m.tokens) / func.nullif(func.sum(m.seconds), 0),
        func.count(),
    ).where(m.job_id == job_id, m.generation == generation, m.step > step - RECENT, m.step <= step)
    low, median, high, tokens, steps = (await conn.execute(query)).one()
    return Pace(
        seconds_per_step=float(median),
        tokens_per_second=None if tokens is None else float(tokens),
        steps_measured=steps,
        seconds_per_step_p10=float(low),
        seconds_per_step_p90=float(high),
    )


async def series(
    conn: AsyncConnection,
    job_id: str,
    *,
    from_step: int,
    to_step: int,
    limit: int,
    max_points: int | None = None,
) -> list[dict[str, Any]]:
    """Rows of the range in order of steps, the first ``limit`` of them.

    With ``max_points`` the range is cut into so many stretches of one length, and each shows one
    of its rows: the last one that has a validation loss, or else its last.
    """
    m = metrics.c
    rows = select(*_SHOWN).where(m.job_id == job_id, m.step.between(from_step, to_step))
    if max_points is not None:
        cut = rows.add_columns(func.ntile(max_points).over(order_by=m.step).label("stretch"))
        every = cut.subquery()
        rows = (
            select(*(c for c in every.c if c.name != "stretch"))
            .ext(distinct_on(every.c.stretch))
            .order_by(every.c.stretch, every.c.valid_loss.is_(None), every.c.step.desc())
        )
    else:
        rows = rows.order_by(m.step)
    return [dict(r) for r in (await conn.execute(rows.limit(limit))).mappings()]


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
