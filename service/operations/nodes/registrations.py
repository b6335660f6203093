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
from service.domain.states import ATTEMPT_ENDING
from service.operations.nodes import nodes as nodes_operations
from service.operations.nodes.nodes import OVER, Standing
from trainer.contract import Registration, Span

_LIST_AGAIN = timedelta(seconds=2)  # after a list without a machine that exists
_SAME_SECONDS = 10.0  # more than a registration takes, less than a boot


@dataclass(frozen=True)
class PendingRegistration:
    """A registration, and when it arrived."""

    registration: Registration
    at: datetime

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
            register, key=lambda one: one.node
        )

    async def register(self, registration: Registration, now: datetime) -> Standing | None:
        """Make the VM a node of its attempt; the same boot again gets the same answer.

        Returns None while ARM has not listed the VM; the reconciler lists again soon, not for each
        request. Raises Gone when the attempt has ended.
        """
        answer = await self._batcher.do(PendingRegistration(registration, now))
        if answer is RegistrationOutcome.KNOWN:
            async with self._engine.begin() as conn:
                return await register_again(conn, registration, now)
        return answer if isinstance(answer, Standing) else None


async def _register_batch(
    engine: AsyncEngine, asked: Sequence[PendingRegistration]
) -> list[RegistrationAnswer]:
    async with engine.begin() as conn:
        return await register_all(conn, asked)


async def register_all(
    conn: AsyncConnection, asked: Sequence[PendingRegistration]
) -> list[RegistrationAnswer]:
    """Register machines; return an answer for each. Only new ones become nodes."""
    now = max(one.at for one in asked)
    found = await attempts.find_all(conn, {one.registration.attempt_id for one in asked})
    live = {id_: row for id_, row in found.items() if row.state not in ATTEMPT_ENDING}
    listed = {one.node: one for one in asked if _is_listed(one, live)}
    made = await nodes.add_all(conn, [_new_node(one) for one in listed.values()], now)
    unseen = {one.registration.attempt_id for one in asked if one.node not in listed}
    await _enqueue_listing(conn, [live[id_] for id_ in unseen & live.keys()], now)
    known = await _record_new_nodes(conn, [listed[node] for node in made], live, now)

    def answer(one: PendingRegistration) -> RegistrationAnswer:
        attempt = live.get(one.registration.attempt_id)
        if attempt is None:
            return Gone(OVER)
        if one.node not in made:
            return RegistrationOutcome.KNOWN if one.node in listed else RegistrationOutcome.UNSEEN
        return Standing(node=made[one.node], attempt=attempt, job=known[attempt.job_id])

    return [answer(one) for one in asked]


def _is_listed(one: PendingRegistration, live: Mapping[str, AttemptRow]) -> bool:
    attempt = live.get(one.registration.attempt_id)
    return attempt is not None and one.registration.vm_id in attempt.vm_ids


def _new_node(one: PendingRegistration) -> NodeRegistration:
    record = apply_registration(None, one.registration, 0)
    spans = [s.to_plain() for s in _in_service_time(one.registration, one.at.timestamp())]
    return NodeRegistration(record=record, name=one.registration.name, spans=spans)


async def _enqueue_listing(
    conn: AsyncConnection, seen: Iterable[AttemptRow], now: datetime
) -> None:
    at = {row.id: row.seen_at + _LIST_AGAIN if row.seen_at else now for row in seen}
    await leases.enqueue_all_by(conn, tables.attempts, at, now)


async def _record_new_nodes(
    conn: AsyncConnection,
    begun: Sequence[PendingRegistration],
    live: Mapping[str, AttemptRow],
    now: datetime,
) -> dict[str, JobRow]:
    """Add the events of new nodes and return their jobs, without waking reconcilers."""
    job_ids = {live[one.registration.attempt_id].job_id for one in begun}
    await job_versions.raise_all(conn, job_ids, now)
    told = [
        _registered_event(live[one.registration.attempt_id], one.registration, "", now)
        for one in begun
    ]
    await events.add_all(conn, told)
    return await jobs.find_all(conn, job_ids)


async def register_again(
    conn: AsyncConnection, registration: Registration, now: datetime
) -> Standing:
    """Register a machine that has a node already; another boot of it adds an event. Raises Gone."""
    attempt = await nodes_operations.live_attempt(conn, registration.attempt_id)
    before = await nodes.lock(conn, node_id(attempt.id, registration.vm_id))
    assert before is not None, "a registered machine has a row"
    record = apply_registration(
        before, registration, await nodes_operations.current_number(conn, attempt.id)
    )
    if before != record:
        await _record_reboot(conn, record, registration, attempt, now)
    job = await nodes_operations.find_job(conn, attempt)
    return Standing(node=record, attempt=attempt, job=job, came_again=True)


async def _record_reboot(
    conn: AsyncConnection,
    record: NodeRecord,
    registration: Registration,
    attempt: AttemptRow,
    now: datetime,
) -> None:
    known = await nodes.spans(conn, record.node_id)
    told = _in_service_time(registration, now.timestamp())
    spans = [s.to_plain() for s in told if not _is_known(s, known)]
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
    attempt: AttemptRow, registration: Registration, how: str, now: datetime
) -> Event:
    message = f"Node {registration.name} registered{how}"
    data = (
        {"vm_size": registration.vm_size, "network": list(registration.network)}
        if registration.network
        else None
    )
    return events.new_event(attempt.job_id, attempt.id, now, "node.registered", message, data=data)


def _in_service_time(registration: Registration, now: float) -> list[Span]:
    """Return the spans by the service's clock: the node's may be hours off."""
    off = now - registration.now if registration.now else 0.0
    return [
        replace(s, started_at=s.started_at + off, ended_at=s.ended_at + off)
        for s in registration.spans
    ]


def _is_known(span: Span, known: Sequence[Span]) -> bool:
    """Return whether the span was reported before.

    Clocks are compared again at each registration, so its start moves by some seconds.
    """
    return any(
        k.name == span.name and abs(k.started_at - span.started_at) < _SAME_SECONDS for k in known
    )
