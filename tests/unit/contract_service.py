"""The simulated service: durable rows, handlers that are one transaction each, and workers.

A worker is a generator; every ``yield`` is a place where its replica may be killed, or where
it may sleep past its lease while another worker goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from service.domain.lifecycle.generation import (
    HaltGeneration,
    NextMembers,
    NodeView,
    is_finished,
    is_settled,
)
from service.domain.lifecycle.node import (
    IgnoredHeartbeat,
    NodeRecord,
    StaleHeartbeat,
    apply_directive,
    is_stale,
    node_id,
    node_view,
)
from tests.unit.contract_supervisor import Refusal, Welcome
from trainer.contract import (
    HEAD,
    Committed,
    Directive,
    DirectiveKind,
    Generation,
    Heartbeat,
    HeartbeatAnswer,
    Member,
    Registration,
)

if TYPE_CHECKING:
    from tests.unit.contract_world import World


@dataclass(eq=False)
class Attempt:
    """As much of an attempt's row as matters here."""

    attempt_id: str
    over: bool = False


class Service:
    """Everything but ``workers`` is in the database and survives."""

    def __init__(self, world: World, wanted: int) -> None:
        self.world = world
        self.wanted = wanted
        self.alive = True
        self.attempts: dict[str, Attempt] = {}
        self.rows: dict[int, Generation] = {}
        self.nodes: dict[str, NodeRecord] = {}
        self.finished = False
        self.workers: list[Iterator[None]] = []

    # --- handlers: one transaction each ---

    def register(self, message: Registration) -> Welcome | Refusal:
        """POST /internal/nodes."""
        if self.attempts[message.attempt_id].over:
            return Refusal.GONE
        known = self.nodes.get(node_id(message.attempt_id, message.vm_id))
        number = self.current_number(message.attempt_id)
        record = self.world.rules.registered(known, message, number)
        self.nodes[record.node_id] = record
        self.world.judge.registered(list(self.nodes.values()))
        return Welcome(record.node_id, record.epoch)

    def heartbeat(self, me: str, message: Heartbeat) -> HeartbeatAnswer | Refusal:
        """POST /internal/nodes/{id}/heartbeat."""
        record = self.nodes[me]
        if self.attempts[record.attempt_id].over:
            return Refusal.GONE
        news = self.world.rules.heard(record, message, 0.0)
        if isinstance(news, StaleHeartbeat):
            return Refusal.STALE_EPOCH
        if isinstance(news, NodeRecord):
            self.nodes[me] = record = news
            self.world.judge.heard_from(record, (message.epoch, message.seq))
            if is_stale(message, self.current_number(record.attempt_id)):
                return Refusal.STALE_GENERATION
        assert isinstance(news, NodeRecord | IgnoredHeartbeat)
        return HeartbeatAnswer(now=0.0, stop_by=0.0, directive_seq=record.directive_seq)

    def poll(self, me: str, after: int) -> Directive | Refusal:
        """GET /internal/nodes/{id}/directive?after=SEQ; may answer the same one twice."""
        record = self.nodes[me]
        if self.attempts[record.attempt_id].over:
            return Refusal.GONE
        kind, number = record.directive_kind, record.directive_number
        if record.directive_seq <= after:
            return Directive(seq=after, kind=DirectiveKind.CARRY_ON, now=0.0, stop_by=0.0)
        row = self.rows[number] if kind is DirectiveKind.START else None
        seq = record.directive_seq
        return Directive(seq=seq, kind=kind, now=0.0, stop_by=0.0, number=number, generation=row)

    # --- workers ---

    def reconcile(self, attempt_id: str) -> Iterator[None]:
        """Look, decide, act, record."""
        listed = {vm.vm_id for vm in self.world.vms if vm.listed}
        yield
        if self.attempts[attempt_id].over:
            return
        current = self.rows.get(self.current_number(attempt_id))
        number = max(self.rows, default=0) + 1
        nodes = [
            node_view(r, r.vm_id in listed)
            for r in self.nodes.values()
            if r.attempt_id == attempt_id
        ]
        yield
        finished = current is not None and is_finished(current, nodes)
        if (finished or self.world.rules.model_first) and self.world.blob.head()[1].model:
            self.attempts[attempt_id].over = self.finished = True
            return
        yield
        step = self.world.rules.next_membership(current, nodes, self._wanted())
        yield
        if isinstance(step, NextMembers):
            yield from self._open(attempt_id, step.nodes, number)
        elif isinstance(step, HaltGeneration):
            assert current is not None, "only a generation can be halted"
            yield from self._direct(step.kind, current.number, step.node_ids)
        elif current is not None and not is_settled(current, nodes):
            ids = tuple(m.node_id for m in current.members)
            yield from self._direct(DirectiveKind.START, current.number, ids)

    def give_up(self, attempt_id: str) -> None:
        """A time limit passed: the next attempt starts while this one is torn down."""
        self.attempts[attempt_id].over = True

    def current_number(self, attempt_id: str) -> int:
        """The number of the attempt's newest generation, or 0."""
        numbers = [n for n, row in self.rows.items() if row.attempt_id == attempt_id]
        return max(numbers, default=0)

    def _wanted(self) -> int:
        if not self.world.elastic:
            return self.wanted
        return self.world.rng.choice((self.wanted - 1, self.wanted))

    def _open(self, attempt_id: str, nodes: tuple[NodeView, ...], number: int) -> Iterator[None]:
        """Take HEAD, then write the row, then direct START.

        ``number`` follows the newest row of the very look that found the last generation
        settled: a worker that comes late then fails on the key, and on HEAD before that.
        """
        if self.world.rules.number_late:
            number = max(self.rows, default=0) + 1
        if self.world.rules.head_first:
            yield from self._fence(number)
        etag_and_head = self.world.blob.head()
        if self.world.rules.head_first and etag_and_head[1].generation != number:
            return  # somebody else was quicker, or the answer got lost: look again next time
        if self.world.rules.model_first and etag_and_head[1].model:
            return  # its commit was on the way while the nodes were looked at
        yield
        row = self._row(number, attempt_id, nodes, etag_and_head[1].newest)
        if number in self.rows or self.attempts[attempt_id].over:
            return  # the unique key, and the guard on the attempt's state
        self.world.judge.row_written(row, self.world.blob.head()[1])
        self.rows[number] = row
        yield
        yield from self._direct(DirectiveKind.START, number, tuple(n.node_id for n in nodes))

    def _fence(self, number: int) -> Iterator[None]:
        etag, head = self.world.blob.head()
        yield
        if head.generation >= number:
            return
        match = etag if self.world.rules.compare_head else ""
        new = head.fenced(number)
        self.world.wire.send(
            self, lambda: self.world.blob.put(HEAD, new, if_match=match), lambda _: None
        )
        for _ in range(4):
            yield

    def _row(
        self,
        number: int,
        attempt_id: str,
        nodes: tuple[NodeView, ...],
        checkpoint: Committed | None,
    ) -> Generation:
        return Generation(
            number=number,
            job_id="job",
            attempt_id=attempt_id,
            members=tuple(
                Member(node_id=n.node_id, vm_id=n.vm_id, address=n.address, node_rank=rank)
                for rank, n in enumerate(nodes)
            ),
            processes_per_node=1,
            master_address=nodes[0].address,
            master_port=nodes[0].free_port,
            checkpoint=checkpoint,
            run_spec_sha256="",
        )

    def _direct(
        self, kind: DirectiveKind, number: int, node_ids: tuple[str, ...]
    ) -> Iterator[None]:
        for me in node_ids:
            self.nodes[me] = apply_directive(self.nodes[me], kind, number)
            yield
