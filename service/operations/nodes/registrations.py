"""Register machines as nodes: thousands boot at once and retry until Azure lists them.

New ones share a transaction; another boot of a known machine has one of its own.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum, auto
from functools import cached_property, partial

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.db.attempts import attempts, nodes
from service.db.attempts.attempts import AttemptRow
from service.db.attempts.nodes import NodeRegistration
from service.db.core import leases
from service.db.core.batching import Batcher
from service.db.jobs import events, job_versions, jobs
from service.db.jobs.events import Event
from service.db.jobs.jobs import JobRow
from service.db.schema import tables
from service.domain.errors import Gone
from service.domain.lifecycle.node import NodeRecord, apply_registration, node_id
from service.domain.states import ATTEMPT_WITH_OUTCOME
from service.operations.nodes import nodes as nodes_operations
from service.operations.nodes.nodes import ATTEMPT_IS_OVER, Standing
from trainer.contract import Registration, Span

_RELIST_DELAY = timedelta(seconds=2)  # after a list without a machine that exists
_SAME_BOOT_SECONDS = 10.0  # more than a registration takes, less than a boot


@dataclass(frozen=True)
class PendingRegistration:
    """A registration, and when it arrived."""

    registration: Registration
    received_at: datetime

    @cached_property
    def node(self) -> str:
        return node_id(self.registration.attempt_id, self.registration.vm_id)


class RegistrationOutcome(Enum):
    """Outcome of a registration that made no node."""

    UNSEEN = auto()  # ARM has not listed the machine
    KNOWN = auto()  # it has a node


RegistrationAnswer = Standing | RegistrationOutcome | Gone


class RegistrationBatcher:
    """Registers machines in batches; one per API process."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        register = partial(_register_batch, engine)
        self._batcher: Batcher[PendingRegistration, RegistrationAnswer] = Batcher(
            register, key=lambda pending: pending.node
        )

    async def register(self, registration: Registration, now: datetime) -> Standing | None:
        """Make the VM a node of its attempt; the same boot again gets the same answer.

        Returns None while ARM has not listed the VM; the reconciler lists again soon, not for each
        request. Raises Gone when the attempt has ended.
        """
        answer = await self._batcher.do(PendingRegistration(registration, now))
        if answer is RegistrationOutcome.KNOWN:
            async with self._engine.begin() as conn:
                return await register_known_machine(conn, registration, now)
        return answer if isinstance(answer, Standing) else None


async def _register_batch(
    engine: AsyncEngine, batch: Sequence[PendingRegistration]
) -> list[RegistrationAnswer]:
    async with engine.begin() as conn:
        return await register_all(conn, batch)


async def register_all(
    conn: AsyncConnection, batch: Sequence[PendingRegistration]
) -> list[RegistrationAnswer]:
    """Register machines; return an answer for each. Only new ones become nodes."""
    now = max(pending.received_at for pending in batch)
    rows = await attempts.find_all(conn, {pending.registration.attempt_id for pending in batch})
    live = {id_: row for id_, row in rows.items() if row.state not in ATTEMPT_WITH_OUTCOME}
    pending_by_node = {pending.node: pending for pending in batch if _is_listed(pending, live)}
    new_nodes = await nodes.add_all(
        conn, [_new_node(pending) for pending in pending_by_node.values()], now
    )
    unseen = {
        pending.registration.attempt_id for pending in batch if pending.node not in pending_by_node
    }
    await _enqueue_listing(conn, [live[id_] for id_ in unseen & live.keys()], now)
    jobs_by_id = await _record_new_nodes(
        conn, [pending_by_node[node] for node in new_nodes], live, now
    )

    def answer(pending: PendingRegistration) -> RegistrationAnswer:
        attempt = live.get(pending.registration.attempt_id)
        if attempt is None:
            return Gone(ATTEMPT_IS_OVER)
        if pending.node not in new_nodes:
            return (
                RegistrationOutcome.KNOWN
                if pending.node in pending_by_node
                else RegistrationOutcome.UNSEEN
            )
        return Standing(
            node=new_nodes[pending.node], attempt=attempt, job=jobs_by_id[attempt.job_id]
        )

    return [answer(pending) for pending in batch]


def _is_listed(pending: PendingRegistration, live: Mapping[str, AttemptRow]) -> bool:
    attempt = live.get(pending.registration.attempt_id)
    return attempt is not None and pending.registration.vm_id in attempt.vm_ids


def _new_node(pending: PendingRegistration) -> NodeRegistration:
    record = apply_registration(None, pending.registration, 0)
    spans = [
        s.to_plain()
        for s in _in_service_time(pending.registration, pending.received_at.timestamp())
    ]
    return NodeRegistration(record=record, name=pending.registration.name, spans=spans)


async def _enqueue_listing(
    conn: AsyncConnection, rows: Iterable[AttemptRow], now: datetime
) -> None:
    at = {row.id: row.seen_at + _RELIST_DELAY if row.seen_at else now for row in rows}
    await leases.enqueue_all_by(conn, tables.attempts, at, now)


async def _record_new_nodes(
    conn: AsyncConnection,
    registrations: Sequence[PendingRegistration],
    live: Mapping[str, AttemptRow],
    now: datetime,
) -> dict[str, JobRow]:
    """Add the events of new nodes and return their jobs, without waking reconcilers."""
    job_ids = {live[pending.registration.attempt_id].job_id for pending in registrations}
    await job_versions.raise_all(conn, job_ids, now)
    new_events = [
        _registered_event(live[pending.registration.attempt_id], pending.registration, "", now)
        for pending in registrations
    ]
    await events.add_all(conn, new_events)
    return await jobs.find_all(conn, job_ids)


async def register_known_machine(
    conn: AsyncConnection, registration: Registration, now: datetime
) -> Standing:
    """Register a machine that has a node already; another boot of it adds an event. Raises Gone."""
    attempt = await nodes_operations.require_live_attempt(conn, registration.attempt_id)
    before = await nodes.lock(conn, node_id(attempt.id, registration.vm_id))
    assert before is not None, "a registered machine has a row"
    record = apply_registration(
        before, registration, await nodes_operations.current_number(conn, attempt.id)
    )
    if before != record:
        await _record_reboot(conn, record, registration, attempt, now)
    job = await nodes_operations.find_job(conn, attempt)
    return Standing(node=record, attempt=attempt, job=job, was_known=True)


async def _record_reboot(
    conn: AsyncConnection,
    record: NodeRecord,
    registration: Registration,
    attempt: AttemptRow,
    now: datetime,
) -> None:
    recorded_spans = await nodes.spans(conn, record.node_id)
    reported_spans = _in_service_time(registration, now.timestamp())
    spans = [s.to_plain() for s in reported_spans if not _is_known(s, recorded_spans)]
    record_now = replace(record, heard_at=now.timestamp())
    await nodes.save(conn, record_now, name=registration.name, registered_at=now)
    await nodes.add_spans(conn, record.node_id, spans)
    await nodes.wake(conn, record.node_id)
    await leases.enqueue(conn, tables.attempts, attempt.id, now)
    await job_versions.raise_all(conn, [attempt.job_id], now)
    await events.add_all(
        conn, [_registered_event(attempt, registration, " again (its supervisor restarted)", now)]
    )


def _registered_event(
    attempt: AttemptRow, registration: Registration, suffix: str, now: datetime
) -> Event:
    message = f"Node {registration.name} registered{suffix}"
    data = (
        {"vm_size": registration.vm_size, "network": list(registration.network)}
        if registration.network
        else None
    )
    return events.new_event(attempt.job_id, attempt.id, now, "node.registered", message, data=data)


def _in_service_time(registration: Registration, now: float) -> list[Span]:
    """Return the spans by the service's clock: the node's may be hours off."""
    offset_s = now - registration.now if registration.now else 0.0
    return [
        replace(s, started_at=s.started_at + offset_s, ended_at=s.ended_at + offset_s)
        for s in registration.spans
    ]


def _is_known(span: Span, recorded_spans: Sequence[Span]) -> bool:
    """Return whether the span was reported before.

    Clocks are compared again at each registration, so its start moves by some seconds.
    """
    return any(
        k.name == span.name and abs(k.started_at - span.started_at) < _SAME_BOOT_SECONDS
        for k in recorded_spans
    )
