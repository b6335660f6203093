"""What nodes said of checkpoints that they could not load."""

from collections import defaultdict

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.tables import checkpoints, findings
from service.domain.findings import Finding


async def add(conn: AsyncConnection, job_id: str, path: str, finding: Finding) -> None:
    """Keep a node's word; the same one said again changes nothing."""
    row = {"job_id": job_id, "path": path, **vars(finding)}
    await conn.execute(upsert(findings).values(row).on_conflict_do_nothing())


async def open_of(conn: AsyncConnection, job_id: str) -> dict[str, list[Finding]]:
    """What was said of the job's checkpoints that nobody has given up yet, oldest first."""
    c, k = findings.c, checkpoints.c
    columns = [c[name] for name in Finding.__dataclass_fields__]
    still = (k.job_id == c.job_id) & (k.path == c.path)
    query = (
        select(c.path, *columns)
        .join(checkpoints, still)
        .where(c.job_id == job_id, k.dropped_at.is_(None), k.broken_because.is_(None))
        .order_by(c.generation, c.node_id)
    )
    said = defaultdict(list)
    for row in (await conn.execute(query)).mappings():
        values = dict(row)
        said[values.pop("path")].append(Finding(**values))
    return dict(said)
