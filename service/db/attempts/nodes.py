"""Read and write rows of nodes; the protocol's rules are in `domain/lifecycle/node.py`."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Row, exists, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.core import notify
from service.db.schema.columns import among
from service.db.schema.tables import attempts, nodes
from service.domain.lifecycle.node import NodeRecord, apply_directive
from service.domain.reporting.timeline import NodeTime
from service.domain.states import ATTEMPT_WITH_NODES
from trainer.contract import DirectiveKind, NodePhase, Span

MOST_SPANS = 2000  # per node; further ones are dropped
_MAX_LOST_DIRECTIVES = 1000  # directives to a node that a restored database may lack
_NOT_COLUMNS = {"node_id", "heard_at", "registered_at"}
_PLAIN_COLUMNS = [name for name in NodeRecord.__dataclass_fields__ if name not in _NOT_COLUMNS]
RECORD_COLUMNS = [nodes.c[name] for name in ("id", "heard_at", "registered_at", *_PLAIN_COLUMNS)]

_DIRECT = text("""
with notified as (
  update nodes n
  set directive_seq = g.seq, directive_kind = g.kind, directive_number = g.number
  from unnest(
    cast(:ids as text[]), cast(:seqs as int[]), cast(:kinds as text[]), cast(:numbers as int[])
  ) as g (id, seq, kind, number)
  where n.id = g.id returning n.id
)
select pg_notify(:channel, 'node:' || id) from notified
""")  # ends the long polls of these nodes


_ADD = text("""
insert into nodes (id, attempt_id, vm_id, name, address, boot_id, epoch, phase, registered_at,
  heard_at, spans)
select id, attempt_id, vm_id, name, address, boot_id, 1, :phase, :now, :now, spans
from unnest(
  cast(:ids as text[]), cast(:attempts as text[]), cast(:vms as text[]), cast(:names as text[]),
  cast(:addresses as text[]), cast(:boots as text[]), cast(:spans as jsonb[])
) as g (id, attempt_id, vm_id, name, address, boot_id, spans)
order by id on conflict do nothing returning id
""")


@dataclass(frozen=True, kw_only=True)
class NodeRegistration:
    """A node that registers for the first time."""

    record: NodeRecord
    name: str
    spans: list[dict[str, Any]]


async def add_all(
    conn: AsyncConnection, new: Sequence[NodeRegistration], now: datetime
) -> dict[str, NodeRecord]:
    """Write the nodes that have no row; return them. Of two boots at once the first wins."""
    if not new:
        return {}
    by_id = {registration.record.node_id: registration.record for registration in new}
    parameters = {
        "ids": list(by_id),
        "attempts": [registration.record.attempt_id for registration in new],
        "vms": [registration.record.vm_id for registration in new],
        "names": [registration.name for registration in new],
        "addresses": [registration.record.address for registration in new],
        "boots": [registration.record.boot_id for registration in new],
        "spans": [json.dumps(registration.spans) for registration in new],
    }
    added = await conn.execute(_ADD, parameters | {"phase": str(NodePhase.READY), "now": now})
    return {id_: by_id[id_] for id_ in added.scalars()}


async def lock(conn: AsyncConnection, node_id: str) -> NodeRecord | None:
    """Return the record, locked until the transaction ends; None if there is no such node."""
    query = select(*RECORD_COLUMNS).where(nodes.c.id == node_id).with_for_update()
    row = (await conn.execute(query)).one_or_none()
    return record(row) if row else None


async def find(conn: AsyncConnection, node_id: str) -> NodeRecord | None:
    """Return the record; None if there is no such node."""
    row = (await conn.execute(select(*RECORD_COLUMNS).where(nodes.c.id == node_id))).one_or_none()
    return record(row) if row else None


async def registered_at(conn: AsyncConnection, node_id: str) -> float:
    """Return when the node last registered afresh, in unix seconds."""
    query = select(nodes.c.registered_at).where(nodes.c.id == node_id)
    moment: datetime = (await conn.execute(query)).scalar_one()
    return moment.timestamp()


async def name_of(conn: AsyncConnection, node_id: str) -> str:
    """Return the name of the node's instance in Azure."""
    name = (await conn.execute(select(nodes.c.name).where(nodes.c.id == node_id))).scalar_one()
    return str(name)


async def of_attempt(conn: AsyncConnection, attempt_id: str) -> list[NodeRecord]:
    """Return every node that ever registered for the attempt."""
    query = select(*RECORD_COLUMNS).where(nodes.c.attempt_id == attempt_id).order_by(nodes.c.id)
    return [record(r) for r in await conn.execute(query)]


async def of_attempts(
    conn: AsyncConnection, attempt_ids: Sequence[str]
) -> dict[str, list[NodeRecord]]:
    """Return every node that ever registered for these attempts, by attempt."""
    query = (
        select(*RECORD_COLUMNS).where(among(nodes.c.attempt_id, attempt_ids)).order_by(nodes.c.id)
    )
    records: dict[str, list[NodeRecord]] = defaultdict(list)
    for row in await conn.execute(query):
        records[row.attempt_id].append(record(row))
    return records


async def save(conn: AsyncConnection, record: NodeRecord, **extra: Any) -> None:  # noqa: ANN401
    """Write a record, new or known."""
    values = {k: v for k, v in asdict(record).items() if k not in _NOT_COLUMNS}
    values |= {"heard_at": datetime.fromtimestamp(record.heard_at, UTC), **extra}
    row = {"id": record.node_id, "name": "", "registered_at": values["heard_at"], **values}
    statement = upsert(nodes).values(row)
    await conn.execute(statement.on_conflict_do_update(index_elements=["id"], set_=values))


async def wake(conn: AsyncConnection, node_id: str) -> None:
    """End the node's long poll: its directive has changed."""
    await notify.notify(conn, f"node:{node_id}")


async def direct_all(
    conn: AsyncConnection, orders: Mapping[str, tuple[DirectiveKind, int]]
) -> None:
    """Give nodes their directives, where they are new; lock the nodes in one order."""
    if not orders:
        return
    query = select(*RECORD_COLUMNS).where(among(nodes.c.id, orders)).order_by(nodes.c.id)
    records = [record(row) for row in await conn.execute(query.with_for_update())]
    assert len(records) == len(orders), "a member of a generation has a row"
    after = [apply_directive(current, *orders[current.node_id]) for current in records]
    changed = [new for new, current in zip(after, records, strict=True) if new != current]
    if changed:
        parameters = {
            "ids": [n.node_id for n in changed],
            "seqs": [n.directive_seq for n in changed],
            "kinds": [str(n.directive_kind) for n in changed],
            "numbers": [n.directive_number for n in changed],
        }
        await conn.execute(_DIRECT, parameters | {"channel": notify.CHANNEL})


async def record_acknowledged(conn: AsyncConnection, node: str, number: int) -> None:
    """Renumber the standing directive to follow ``number``, which the node has received.

    A restored database lacks the newest numbers. A number far beyond ours is ignored: the service
    never sent it.
    """
    c = nodes.c
    conditions = (
        c.id == node,
        c.directive_seq < number,
        c.directive_seq >= number - _MAX_LOST_DIRECTIVES,
    )
    await conn.execute(update(nodes).where(*conditions).values(directive_seq=number + 1))


async def are_all_silent(conn: AsyncConnection, since: datetime) -> bool:
    """Return whether nodes should exist, but none of any attempt was heard after ``since``."""
    live = attempts.c.state.in_(ATTEMPT_WITH_NODES)
    recent_nodes = select(nodes.c.id).join(attempts, attempts.c.id == nodes.c.attempt_id)
    recent_nodes = recent_nodes.where(live, nodes.c.heard_at > since)
    row = await conn.execute(select(exists().where(live), exists(recent_nodes)))
    return row.one() == (True, False)


async def last_error(conn: AsyncConnection, attempt_id: str) -> str:
    """Return the last output of a failed trainer of the attempt; empty if none failed."""
    query = select(nodes.c.error).where(nodes.c.attempt_id == attempt_id, nodes.c.error != "")
    newest = query.order_by(nodes.c.non_retryable.desc(), nodes.c.heard_at.desc()).limit(1)
    return (await conn.execute(newest)).scalar_one_or_none() or ""


@dataclass(frozen=True, kw_only=True)
class NodeReport:
    """A node's report of its work: the last step, and how it spent its time."""

    attempt_id: str
    name: str
    step: int  # the last one that it reported as finished
    time: NodeTime


async def reports_of_job(conn: AsyncConnection, job_id: str) -> list[NodeReport]:
    """Return the reports of all nodes of all attempts of the job, ordered by name."""
    c = nodes.c
    query = (
        select(c.attempt_id, c.name, c.step, c.registered_at, c.spans)
        .join(attempts, attempts.c.id == c.attempt_id)
        .where(attempts.c.job_id == job_id)
        .order_by(c.name)
    )
    return [
        NodeReport(
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
    """Return the time spans that the node has reported; none for a new node."""
    query = select(nodes.c.spans).where(nodes.c.id == node_id)
    documents = (await conn.execute(query)).scalar_one_or_none() or []
    return [Span.from_dict(s) for s in documents]


async def spans_named(conn: AsyncConnection, attempt_id: str, name: str) -> list[Span]:
    """Return the spans with this name that any node of the attempt has reported."""
    query = select(nodes.c.spans).where(nodes.c.attempt_id == attempt_id)
    documents = (s for spans in (await conn.execute(query)).scalars() for s in spans)
    return [Span.from_dict(s) for s in documents if s["name"] == name]


async def add_spans(
    conn: AsyncConnection, node_id: str, spans: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Add time spans that the node measured; return the new ones."""
    if not spans:
        return []
    query = select(nodes.c.spans).where(nodes.c.id == node_id)
    existing = (await conn.execute(query)).scalar_one()
    room = max(MOST_SPANS - len(existing), 0)
    added = [s for s in spans if s not in existing][:room]
    if added:
        merged = nodes.c.spans.concat(added)
        await conn.execute(update(nodes).where(nodes.c.id == node_id).values(spans=merged))
    return added


def record(row: Row[Any]) -> NodeRecord:
    """Return the record that a row of the table holds."""
    values = {name: getattr(row, name) for name in _PLAIN_COLUMNS}
    values["phase"] = NodePhase(row.phase)
    values["directive_kind"] = DirectiveKind(row.directive_kind)
    times = {name: getattr(row, name).timestamp() for name in ("heard_at", "registered_at")}
    return NodeRecord(node_id=row.id, **times, **values)
