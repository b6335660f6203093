"""Batch the heartbeats of nodes, and their long polls for directives, into shared transactions.

Requests that arrive while a transaction runs share the next one. `decide_change` has the rules for
one heartbeat; `record_heartbeats` writes the changes of a whole batch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from operator import attrgetter

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.db.attempts import heartbeats
from service.db.attempts.heartbeats import GenerationProgress, LockedNode, StandingDirective
from service.db.core import leases, locks
from service.db.core.batching import Batcher
from service.db.core.engine import reading
from service.db.jobs import events, job_versions, step_metrics
from service.db.jobs.events import Event
from service.db.schema import tables
from service.domain.errors import GenerationIsStale, Gone, NodeNotFound
from service.domain.lifecycle import node as rules
from service.domain.lifecycle.node import NodeRecord
from service.domain.reporting.progress import progress_of
from service.instruments import GPU_ECC, GPU_MEMORY, GPU_UTILIZATION, GPU_XID
from service.operations.nodes import node_reports
from service.operations.nodes.nodes import ATTEMPT_IS_OVER, stale_boot_error, storable_text
from trainer.contract import GpuErrors, Heartbeat

# Seconds between two batches, unless this many heartbeats wait.
_BATCH_SECONDS, _BATCH_SIZE = 0.05, 50


@dataclass(frozen=True, kw_only=True)
class ReceivedHeartbeat:
    """A heartbeat, the node that sent it, and when it arrived."""

    node: str
    heartbeat: Heartbeat
    received_at: datetime


@dataclass(frozen=True, kw_only=True)
class NodeAnswer:
    """The answer to a heartbeat."""

    directive_seq: int
    stop_by: datetime | None  # a node without contact trains until then; None: no budget limits it


@dataclass(frozen=True, kw_only=True)
class AcceptedHeartbeat:
    """A heartbeat that changes its node's row."""

    locked_node: LockedNode
    heartbeat: Heartbeat
    new_record: NodeRecord  # the row then
    answer: NodeAnswer | GenerationIsStale

    @property
    def must_act(self) -> bool:
        """Whether the reconciler must act on it."""
        return rules.should_wake_reconciler(
            self.locked_node.record, self.new_record, self.heartbeat
        )

    @property
    def is_notice(self) -> bool:
        """Whether it is the first heartbeat that reports the node's eviction."""
        return self.heartbeat.eviction is not None and not self.locked_node.record.evicting

    @property
    def is_progress(self) -> bool:
        """Whether it reports progress of the current generation."""
        current = self.heartbeat.generation == self.locked_node.current
        return bool(self.heartbeat.metrics) and current


class HeartbeatBatcher:
    """Batches heartbeats and directive polls; one instance per api process."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._heartbeat_batcher = Batcher(
            partial(_record_batch, engine),
            attrgetter("node"),
            pause=_BATCH_SECONDS,
            full_size=_BATCH_SIZE,
        )
        self._directive_batcher = Batcher(partial(_find_directives, engine))

    async def record(self, node: str, heartbeat: Heartbeat, now: datetime) -> NodeAnswer:
        """Record a heartbeat and return the answer for its node.

        Raises Gone, NodeNotFound and StaleEpoch, which record nothing, and GenerationIsStale after
        the heartbeat was recorded.
        """
        return await self._heartbeat_batcher.do(
            ReceivedHeartbeat(node=node, heartbeat=heartbeat, received_at=now)
        )

    async def find_directive(self, node: str, after: int) -> StandingDirective | None:
        """Return the node's standing directive; None if there is no such node.

        ``after``: number of the directive that the node has. The answer includes the generation if
        it is new to the node.
        """
        return await self._directive_batcher.do((node, after))


async def record_heartbeats(
    conn: AsyncConnection, heartbeat_by_node: Mapping[str, Heartbeat], now: datetime
) -> dict[str, AcceptedHeartbeat | NodeAnswer | Exception]:
    """Record heartbeats, given by node, and return what was decided for each.

    Only an `AcceptedHeartbeat` changes rows. Locks nodes, then step metrics, then attempts, then
    jobs, and rows of each table in one order.
    """
    locked_nodes = await heartbeats.lock_nodes(conn, list(heartbeat_by_node))
    answers = {
        node: decide_change(node, locked_nodes.get(node), beat, now)
        for node, beat in sorted(heartbeat_by_node.items())
    }
    accepted = [answer for answer in answers.values() if isinstance(answer, AcceptedHeartbeat)]
    if accepted:
        await _write_changes(conn, accepted, now)
    return answers


def decide_change(
    node: str, locked_node: LockedNode | None, heartbeat: Heartbeat, now: datetime
) -> AcceptedHeartbeat | NodeAnswer | Exception:
    """Decide what one heartbeat changes, and the answer for its node. Pure."""
    if locked_node is None:
        return NodeNotFound(f"No node {node:.80}. Register first.")
    if locked_node.is_attempt_over:
        return Gone(ATTEMPT_IS_OVER)
    after = rules.apply_heartbeat(locked_node.record, heartbeat, now.timestamp())
    if isinstance(after, rules.StaleHeartbeat):
        return stale_boot_error()
    answer = NodeAnswer(directive_seq=locked_node.record.directive_seq, stop_by=locked_node.stop_by)
    if isinstance(after, rules.IgnoredHeartbeat):
        return answer
    is_stale = rules.is_stale(heartbeat, locked_node.current)
    refusal = GenerationIsStale("A newer generation was opened. Stop, and commit nothing.")
    return AcceptedHeartbeat(
        locked_node=locked_node,
        heartbeat=heartbeat,
        new_record=after,
        answer=refusal if is_stale else answer,
    )


async def _write_changes(
    conn: AsyncConnection, accepted: Sequence[AcceptedHeartbeat], now: datetime
) -> None:
    await heartbeats.save(
        conn, [(t.new_record, storable_text(t.heartbeat.error)) for t in accepted], now
    )
    metrics = [
        (t.locked_node.job_id, t.heartbeat.generation, t.heartbeat.metrics) for t in accepted
    ]
    await step_metrics.add_all(conn, metrics)
    attempt_ids = {t.new_record.attempt_id for t in accepted if t.must_act}
    await leases.enqueue_all(conn, tables.attempts, attempt_ids, now)
    notices = [t for t in accepted if t.is_notice]
    progress = {t.locked_node.job_id: _generation_progress(t) for t in accepted if t.is_progress}
    with_reports = [t for t in accepted if node_reports.has_reports(t.heartbeat)]
    jobs = {t.locked_node.job_id for t in (*notices, *with_reports)} | progress.keys()
    await locks.before_writing(conn, tables.jobs, jobs)
    await job_versions.raise_all(conn, {t.locked_node.job_id for t in notices}, now)
    await events.add_all(conn, [_eviction_event(t, now) for t in notices])
    for t in with_reports:
        await node_reports.record_reports(conn, t.locked_node, t.heartbeat, now)
    await heartbeats.record_progress(conn, list(progress.values()), now)


def _eviction_event(accepted: AcceptedHeartbeat, now: datetime) -> Event:
    locked_node, eviction = accepted.locked_node, accepted.heartbeat.eviction
    assert eviction is not None, "it is one"
    return events.new_event(
        locked_node.job_id,
        locked_node.record.attempt_id,
        now,
        "node.eviction_notice",
        f"Azure announced the eviction of one instance of attempt {locked_node.attempt_number}",
        level="warn",
        data={"node": locked_node.record.node_id, "not_before": eviction.not_before},
    )


def _generation_progress(accepted: AcceptedHeartbeat) -> GenerationProgress:
    heartbeat = accepted.heartbeat
    return GenerationProgress(
        job_id=accepted.locked_node.job_id,
        generation=heartbeat.generation,
        step=max(m.step for m in heartbeat.metrics),
        changes=progress_of(heartbeat.metrics, heartbeat.save_cost),
    )


async def _record_batch(
    engine: AsyncEngine, batch: Sequence[ReceivedHeartbeat]
) -> list[NodeAnswer | Exception]:
    now = max(received.received_at for received in batch)
    async with engine.begin() as conn:
        answers = await record_heartbeats(
            conn, {received.node: received.heartbeat for received in batch}, now
        )
    for answer in answers.values():
        if isinstance(answer, AcceptedHeartbeat):
            _observe_gpus(answer.heartbeat, answer.locked_node.region, answer.locked_node.vm_size)
    outcomes = (answers[received.node] for received in batch)
    return [
        answer.answer if isinstance(answer, AcceptedHeartbeat) else answer for answer in outcomes
    ]


def _observe_gpus(heartbeat: Heartbeat, region: str, vm_size: str) -> None:
    """Record the readings of a node's GPUs. Counters of a pool begin at 0 with the first one."""
    if not heartbeat.gpus and heartbeat.gpu_errors is None:
        return
    for gpu in heartbeat.gpus:
        GPU_UTILIZATION.observe(region, vm_size, value=gpu.busy)
        GPU_MEMORY.observe(region, vm_size, value=gpu.memory)
    errors = heartbeat.gpu_errors or GpuErrors()
    GPU_ECC.add("corrected", region, vm_size, amount=errors.corrected)
    GPU_ECC.add("uncorrected", region, vm_size, amount=errors.uncorrected)
    GPU_XID.add("fatal", region, vm_size, amount=errors.fatal_xids)
    GPU_XID.add("other", region, vm_size, amount=errors.other_xids)


async def _find_directives(
    engine: AsyncEngine, keys: Sequence[tuple[str, int]]
) -> list[StandingDirective | None]:
    # Not with a ROLLBACK after it: psycopg then forgets what the connection has prepared.
    async with reading(engine).connect() as conn:
        directives = await heartbeats.standing_directives(conn, list(dict.fromkeys(keys)))
    return [directives.get(key) for key in keys]
