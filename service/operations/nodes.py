"""The service's side of the node protocol: registration, heartbeats, directives.

What a message changes is decided by the pure rules in domain/node.py; here it is read,
written and passed on to the reconciler. One transaction each.
"""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from service.db import attempts, events, generations, jobs, leases, metrics, nodes, tables
from service.db.attempts import AttemptRow
from service.db.generations import Opened
from service.db.jobs import JobRow
from service.domain.errors import Gone, NodeNotFound
from service.domain.node import (
    Ignored,
    NodeRecord,
    StaleEpoch,
    heard,
    is_stale,
    node_id,
    registered,
)
from service.domain.states import ATTEMPT_OVER
from trainer.contract import Generation, Heartbeat, Registration


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A node with the attempt and job it works for."""

    node: NodeRecord
    attempt: AttemptRow
    job: JobRow
    registered_at: float = 0.0  # unix seconds of the last fresh registration


@dataclass(frozen=True, kw_only=True)
class Heard:
    """What became of a heartbeat: ``refusal`` is "", "stale_epoch" or "stale_generation"."""

    node: NodeRecord
    refusal: str = ""


async def register(
    conn: AsyncConnection, registration: Registration, now: datetime
) -> Standing | None:
    """Make the VM a node of its attempt; the same boot again is answered the same.

    None while ARM has not listed the VM (it is looked at again at once). Raises Gone when
    the attempt is over.
    """
    attempt = await _live_attempt(conn, registration.attempt_id)
    if registration.vm_id not in attempt.vm_ids:
        await leases.hint(conn, tables.attempts, attempt.id, now)
        return None
    name = node_id(attempt.id, registration.vm_id)
    await nodes.reserve(conn, name)
    before = await nodes.lock(conn, name)
    record = registered(before, registration, await _current_number(conn, attempt.id))
    if before is None or before != record:
        await _welcome(conn, record, registration, attempt, now)
    return Standing(node=record, attempt=attempt, job=await _job(conn, attempt))


async def hear(conn: AsyncConnection, node: str, heartbeat: Heartbeat, now: datetime) -> Heard:
    """Take in a heartbeat; one without news changes nothing. Raises Gone and NodeNotFound."""
    record = await nodes.lock(conn, node)
    if record is None:
        raise NodeNotFound(f"No node {node}. Register first.")
    attempt = await _live_attempt(conn, record.attempt_id)
    after = heard(record, heartbeat, now.timestamp())
    if isinstance(after, StaleEpoch):
        return Heard(node=record, refusal="stale_epoch")
    if isinstance(after, Ignored):
        return Heard(node=record)
    printable = heartbeat.error.replace("\0", "\ufffd")  # Postgres has no NUL, a log's tail may
    await nodes.save(conn, after, error=printable)
    await nodes.add_spans(conn, node, [s.to_plain() for s in heartbeat.spans])
    await metrics.add(conn, attempt.job_id, heartbeat.generation, heartbeat.metrics)
    await _report(conn, attempt, record, after, heartbeat, now)
    stale = is_stale(heartbeat, await _current_number(conn, attempt.id))
    return Heard(node=after, refusal="stale_generation" if stale else "")


async def standing(conn: AsyncConnection, node: str) -> Standing:
    """The node's directive as it stands. Raises Gone and NodeNotFound."""
    record = await nodes.find(conn, node)
    if record is None:
        raise NodeNotFound(f"No node {node}. Register first.")
    attempt = await _live_attempt(conn, record.attempt_id)
    return Standing(
        node=record,
        attempt=attempt,
        job=await _job(conn, attempt),
        registered_at=await nodes.registered_at(conn, node),
    )


async def generation_of(conn: AsyncConnection, attempt_id: str, number: int) -> Generation | None:
    """The attempt's newest generation if it has this number."""
    opened = await _current(conn, attempt_id)
    return opened.generation if opened and opened.generation.number == number else None


async def _welcome(
    conn: AsyncConnection,
    record: NodeRecord,
    registration: Registration,
    attempt: AttemptRow,
    now: datetime,
) -> None:
    spans = [s.to_plain() for s in registration.spans]
    record_now = NodeRecord(**vars(record) | {"heard_at": now.timestamp()})
    await nodes.save(conn, record_now, name=registration.name, registered_at=now)
    await nodes.add_spans(conn, record.node_id, spans)
    await nodes.wake(conn, record.node_id)
    await leases.hint(conn, tables.attempts, attempt.id, now)
    again = " again (its supervisor restarted)" if record.epoch > 1 else ""
    message = f"Node {registration.name} registered{again}"
    await events.add(conn, attempt.job_id, now, "node.registered", message, attempt_id=attempt.id)


async def _report(
    conn: AsyncConnection,
    attempt: AttemptRow,
    before: NodeRecord,
    after: NodeRecord,
    heartbeat: Heartbeat,
    now: datetime,
) -> None:
    """Wake the reconciler when the heartbeat says something that it must act on."""
    first_step = after.step > 0 and before.step != after.step and before.step == 0
    changed = (before.phase, before.generation, before.evicting) != (
        after.phase,
        after.generation,
        after.evicting,
    )
    if changed or first_step or heartbeat.committed:
        await leases.hint(conn, tables.attempts, attempt.id, now)
    if heartbeat.eviction is not None and not before.evicting:
        await events.add(
            conn,
            attempt.job_id,
            now,
            "node.eviction_notice",
            f"Azure announced that it takes back one instance of attempt {attempt.number}",
            attempt_id=attempt.id,
            level="warn",
            data={"node": after.node_id, "not_before": heartbeat.eviction.not_before},
        )


async def _live_attempt(conn: AsyncConnection, attempt_id: str) -> AttemptRow:
    attempt = await attempts.find(conn, attempt_id)
    if attempt is None or attempt.state in ATTEMPT_OVER:
        raise Gone("The attempt is over. This node is not needed any more: stop and leave.")
    return attempt


async def _job(conn: AsyncConnection, attempt: AttemptRow) -> JobRow:
    job = await jobs.find(conn, attempt.job_id)
    assert job is not None, "an attempt has a job: the foreign key says so"
    return job


async def _current(conn: AsyncConnection, attempt_id: str) -> Opened | None:
    return await generations.current(conn, attempt_id)


async def _current_number(conn: AsyncConnection, attempt_id: str) -> int:
    opened = await _current(conn, attempt_id)
    return opened.generation.number if opened else 0
