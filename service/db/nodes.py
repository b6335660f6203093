"""Nodes: the rows that the protocol's pure rules (domain/node.py) change."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Row, func, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db import notices
from service.db.tables import attempts, nodes
from service.domain.node import NodeRecord, directed
from service.domain.timeline import NodeTime
from trainer.contract import DirectiveKind, NodePhase, Span

_NOT_COLUMNS = {"node_id", "heard_at"}


async def reserve(conn: AsyncConnection, node_id: str) -> None:
    """Keep others from registering this node until the transaction ends.

    A node that is new has no row to lock, and two boots at once would get the same epoch.
    """
    key = func.hashtextextended(node_id, 0)
    await conn.execute(select(func.pg_advisory_xact_lock(key)))


async def lock(conn: AsyncConnection, node_id: str) -> NodeRecord | None:
    """The record, locked until this transaction ends; None when there is no such node."""
    query = select(nodes).where(nodes.c.id == node_id).with_for_update()
    row = (await conn.execute(query)).one_or_none()
    return _record(row) if row else None


async def find(conn: AsyncConnection, node_id: str) -> NodeRecord | None:
    """The record, or None."""
    row = (await conn.execute(select(nodes).where(nodes.c.id == node_id))).one_or_none()
    return _record(row) if row else None


async def registered_at(conn: AsyncConnection, node_id: str) -> float:
    """When the node last registered afresh, in unix seconds."""
    query = select(nodes.c.registered_at).where(nodes.c.id == node_id)
    moment: datetime = (await conn.execute(query)).scalar_one()
    return moment.timestamp()


async def of_attempt(conn: AsyncConnection, attempt_id: str) -> list[NodeRecord]:
    """Every node that ever registered for the attempt."""
    query = select(nodes).where(nodes.c.attempt_id == attempt_id).order_by(nodes.c.id)
    return [_record(r) for r in await conn.execute(query)]


async def save(conn: AsyncConnection, record: NodeRecord, **extra: Any) -> None:  # noqa: ANN401
    """Write a record, new or known."""
    values = {k: v for k, v in asdict(record).items() if k not in _NOT_COLUMNS}
    values |= {"heard_at": datetime.fromtimestamp(record.heard_at, UTC), **extra}
    fresh = {"id": record.node_id, "name": "", "registered_at": values["heard_at"], **values}
    statement = upsert(nodes).values(fresh)
    await conn.execute(statement.on_conflict_do_update(index_elements=["id"], set_=values))


async def wake(conn: AsyncConnection, node_id: str) -> None:
    """End the node's long poll: its directive has changed."""
    await notices.notify(conn, f"node:{node_id}")


async def direct(
    conn: AsyncConnection, node_ids: Sequence[str], kind: DirectiveKind, number: int
) -> bool:
    """Give these nodes a directive; True when that changed anything."""
    changed = False
    for node_id in sorted(node_ids):  # one order everywhere: no deadlock
        record = await lock(conn, node_id)
        assert record is not None, f"a member of a generation has a row: {node_id}"
        after = directed(record, kind, number)
        if after != record:
            await save(conn, after)
            await wake(conn, node_id)
            changed = True
    return changed


async def last_error(conn: AsyncConnection, attempt_id: str) -> str:
    """What a failed trainer of the attempt printed last; empty when none failed."""
    query = select(nodes.c.error).where(nodes.c.attempt_id == attempt_id, nodes.c.error != "")
    newest = query.order_by(nodes.c.hopeless.desc(), nodes.c.heard_at.desc()).limit(1)
    return (await conn.execute(newest)).scalar_one_or_none() or ""


@dataclass(frozen=True, kw_only=True)
class Told:
    """What one node has told of its work."""

    attempt_id: str
    name: str
    step: int  # the last one that it is known to have finished
    time: NodeTime


async def told(conn: AsyncConnection, job_id: str) -> list[Told]:
    """By every node of every attempt of the job."""
    c = nodes.c
    query = (
        select(c.attempt_id, c.name, c.step, c.registered_at, c.spans)
        .join(attempts, attempts.c.id == c.attempt_id)
        .where(attempts.c.job_id == job_id)
        .order_by(c.name)
    )
    return [
        Told(
            attempt_id=row.attempt_id,
            name=row.name,
            step=row.step,
            time=NodeTime(
                registered_at=row.registered_at,
                spans=tuple(Span.from_dict(s) for s in row.spans),
            ),
        )
        for row in await conn.execute(query)
    ]


async def spans(conn: AsyncConnection, node_id: str) -> list[Span]:
    """What the node has told of its own time; nothing for a node that is new."""
    query = select(nodes.c.spans).where(nodes.c.id == node_id)
    known = (await conn.execute(query)).scalar_one_or_none() or []
    return [Span.from_dict(s) for s in known]


async def spans_named(conn: AsyncConnection, attempt_id: str, name: str) -> list[Span]:
    """Those of this name that any node of the attempt has told."""
    query = select(nodes.c.spans).where(nodes.c.attempt_id == attempt_id)
    told = (s for spans in (await conn.execute(query)).scalars() for s in spans)
    return [Span.from_dict(s) for s in told if s["name"] == name]


async def add_spans(conn: AsyncConnection, node_id: str, spans: list[dict[str, Any]]) -> None:
    """Add what the node measured of its own time; what was told before is known already."""
    if not spans:
        return
    query = select(nodes.c.spans).where(nodes.c.id == node_id)
    known = (await conn.execute(query)).scalar_one()
    news = [s for s in spans if s not in known]
    if news:
        merged = nodes.c.spans.concat(news)
        await conn.execute(update(nodes).where(nodes.c.id == node_id).values(spans=merged))


def _record(row: Row[Any]) -> NodeRecord:
    values = {k: getattr(row, k) for k in NodeRecord.__dataclass_fields__ if k not in _NOT_COLUMNS}
    values["phase"] = NodePhase(row.phase)
    values["directive_kind"] = DirectiveKind(row.directive_kind)
    return NodeRecord(node_id=row.id, heard_at=row.heard_at.timestamp(), **values)
