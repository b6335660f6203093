"""What rank 0 measured, one row per training step; a step done again overwrites itself."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.tables import metrics
from trainer.contract import StepMetrics


async def add(
    conn: AsyncConnection, job_id: str, generation: int, rows: Sequence[StepMetrics]
) -> None:
    """Keep a batch; sent twice it is kept once, and a newer generation's word wins."""
    by_step = {m.step: m for m in rows}
    values = [
        {k: v for k, v in asdict(m).items() if k != "at"}
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


async def of_job(conn: AsyncConnection, job_id: str) -> list[dict[str, Any]]:
    """The whole series in order of steps."""
    query = select(metrics).where(metrics.c.job_id == job_id).order_by(metrics.c.step)
    return [dict(r) for r in (await conn.execute(query)).mappings()]


async def progress(conn: AsyncConnection, job_id: str) -> tuple[int, int, float | None]:
    """Newest step, trained tokens up to it, and median seconds of its last 50 steps."""
    m = metrics.c
    total = select(func.max(m.step), func.sum(m.tokens)).where(m.job_id == job_id)
    step, tokens = (await conn.execute(total)).one()
    if step is None:
        return 0, 0, None
    last = select(m.seconds).where(m.job_id == job_id, m.step > step - 50).subquery()
    median = select(func.percentile_cont(0.5).within_group(last.c.seconds))
    return step, int(tokens), float((await conn.execute(median)).scalar_one())
