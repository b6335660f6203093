"""Observe an attempt: its scale set, its nodes, its generation, HEAD.

New facts (instances, machine time, committed checkpoints) are written at once, so that they are
known even if the next step never happens. Concurrent observations share their database
transactions: `observations.py`.
"""

import logging
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial

from sqlalchemy.exc import DataError
from sqlalchemy.ext.asyncio import AsyncEngine

from service.cloud.provider import CloudError, CloudProvider, ScaleSetNotFound
from service.db.attempts import attempt_facts
from service.db.attempts.attempt_facts import AttemptInputs
from service.db.attempts.attempts import AttemptRow
from service.db.core import leases
from service.db.core.batching import Batcher
from service.db.core.leases import Claim
from service.domain.cloud.fleet import Instance, ScaleSet, ScaleSetPhase, scale_set_name
from service.domain.lifecycle.attempt import TOO_LONG_TO_DELETE, Attempt, AttemptView, wait_start
from service.domain.lifecycle.elastic import UNKNOWN_OUTLOOK, GrowthOutlook
from service.domain.lifecycle.generation import NodeView, count_without_loss, is_finished
from service.domain.lifecycle.node import NodeRecord, node_view
from service.domain.money.budget import DEFAULT_ALLOWANCE, Allowance
from service.domain.states import ATTEMPT_WITH_NODES, AttemptState
from service.operations.attempts import heads
from service.operations.attempts.heads import HeadUnreadable
from service.operations.money import budgets
from service.operations.monitoring import operator_action
from service.operations.monitoring.operator_action import ActionRequest
from service.reconciler.attempts import observations, outlook
from service.reconciler.attempts.observations import Observation
from service.reconciler.cloud.concurrency_limit import ConcurrencyLimitReached
from service.reconciler.cloud.rate_limit import Deferred
from service.storage.store import BlobStore, StorageError
from trainer.contract import Generation, Head

log = logging.getLogger(__name__)
_UNSTORABLE = "holds what cannot be kept"
_MIN_RECHECK_INTERVAL = timedelta(seconds=5)  # between the two 404s that prove a scale set gone
_NOTE_LIFETIME = timedelta(minutes=10)  # older notes of this process are dropped


@dataclass(frozen=True, kw_only=True)
class ObservedAttempt:
    """An attempt with the requests of its job, and the facts that were observed."""

    attempt: Attempt
    view: AttemptView
    newest_number: int  # of the job's generations, read together with the nodes
    faults: tuple[CloudError | StorageError, ...]  # why a part could not be observed
    action_request: ActionRequest | None  # the newest request for operator action, or its end


@dataclass(frozen=True, kw_only=True)
class Observer:
    """Observes attempts; concurrent observations share database transactions."""

    engine: AsyncEngine
    store: BlobStore
    allowance: Allowance = DEFAULT_ALLOWANCE
    # By attempt whose scale set was not found: first when, and when it was last seen before.
    _missing: dict[str, tuple[datetime, datetime | None]] = field(default_factory=dict)
    # By attempt whose rank 0 has finished while HEAD names no model: since when, and seen last.
    _unnamed: dict[str, tuple[datetime, datetime]] = field(default_factory=dict)

    @cached_property
    def _observations(self) -> Batcher[Observation, AttemptInputs]:
        return Batcher(
            partial(observations.record_observations, self.engine),
            key=lambda observation: observation.row.id,
        )

    async def observe(
        self,
        cloud: CloudProvider | ScaleSet | None,
        claim: Claim,
        row: AttemptRow,
        awake_since: datetime,
        now: datetime,
    ) -> ObservedAttempt:
        """Read cloud and Blob outside any transaction, then write what is new.

        ``cloud``: the scale set instead, if the list of all says enough; None: there is none.
        ``awake_since``: silence of a node counts from then on, when the service could hear it. A
        commit counts as a heartbeat of every member of the generation.
        Raises LeaseLost; Deferred or ConcurrencyLimitReached if the cloud is needed to decide.
        """
        from_list = isinstance(cloud, ScaleSet | None) or row.state is AttemptState.PENDING
        scale_set, cloud_fault = await self._read_scale_set(cloud, row, now)
        head, head_fault = await _read_head(self.store, row)
        observation = Observation(
            claim=claim,
            row=row,
            scale_set=scale_set,
            observed_at=now,
            newest_path=_newest_path(head),
            cloud_answered=not (from_list or cloud_fault),
            updates_machines=not from_list,
        )
        facts, growth = await self._observations.do(observation), UNKNOWN_OUTLOOK
        if _needs_update(facts, row, scale_set, head):
            facts, growth, record_fault = await self._update_facts(observation, facts, head)
            head, head_fault = (None, record_fault) if record_fault else (head, head_fault)
        faults = tuple(f for f in (cloud_fault, head_fault) if f is not None)
        view = _attempt_view(observation, facts, head, awake_since)
        return ObservedAttempt(
            attempt=facts.attempt,
            view=replace(
                view,
                cloud_unreachable=cloud_fault is not None,
                outlook=growth,
                awake_since=awake_since,
                cannot_boot=operator_action.open_message("boot", row.id, facts.help_event),
                head_unreadable_since=_unreadable_since(row, facts, head_fault),
                misconfigured=operator_action.open_message("azure", row.id, facts.help_event),
                unnamed_since=self._unnamed_since(row, view, now),
            ),
            newest_number=facts.last_generation.number if facts.last_generation else 0,
            faults=faults,
            action_request=operator_action.parse_request(facts.help_event),
        )

    async def _read_scale_set(
        self, cloud: CloudProvider | ScaleSet | None, row: AttemptRow, now: datetime
    ) -> tuple[ScaleSet | None, CloudError | None]:
        """Return the scale set (None: absent), and the fault if the cloud did not answer.

        While nodes train, a cloud that does not answer does not mean that they are gone.
        """
        if isinstance(cloud, ScaleSet | None):
            return cloud, None
        if row.state is AttemptState.PENDING:
            return None, None
        try:
            scale_set = await cloud.get(scale_set_name(row.id))
        except ScaleSetNotFound as missing:
            is_gone = row.state not in ATTEMPT_WITH_NODES or self._was_missing(row, now)
            return (None, None) if is_gone else (last_known_scale_set(row), missing)
        except CloudError as fault:
            is_deletion_on_time = (
                row.state is AttemptState.TERMINATING and now - row.since <= TOO_LONG_TO_DELETE
            )
            if is_deletion_on_time and isinstance(fault, Deferred | ConcurrencyLimitReached):
                raise  # nothing can be decided without the cloud
            return (last_known_scale_set(row) if row.state in ATTEMPT_WITH_NODES else None), fault
        self._missing.pop(row.id, None)
        return scale_set, None

    def _was_missing(self, row: AttemptRow, now: datetime) -> bool:
        """Return whether the scale set was missing twice in a row.

        One answer of a front end that lags must not end a healthy run. No replica may have
        seen the scale set in between.
        """
        for attempt_id in [i for i, (at, _) in self._missing.items() if now - at > _NOTE_LIFETIME]:
            del self._missing[attempt_id]
        first, before = self._missing.get(row.id, (now, row.seen_at))
        if before != row.seen_at:
            first = now
        self._missing[row.id] = first, row.seen_at
        return now - first >= _MIN_RECHECK_INTERVAL

    async def _update_facts(
        self, observation: Observation, facts: AttemptInputs, head: Head | None
    ) -> tuple[AttemptInputs, GrowthOutlook, HeadUnreadable | None]:
        """Write rare updates, without HEAD if its content cannot be stored; return the fault."""
        try:
            return *await self._write_update(observation, facts, head), None
        except (DataError, ValueError, OverflowError):
            log.exception("head.unreadable", extra={"job": observation.row.job_id})
            fault = HeadUnreadable(heads.unreadable_message(observation.row.job_id, _UNSTORABLE))
            return *await self._write_update(observation, facts, None), fault

    def _unnamed_since(self, row: AttemptRow, view: AttemptView, now: datetime) -> datetime | None:
        """Return since when rank 0 claims without proof that HEAD names the model; None: not so.

        HEAD is read before the nodes, so an observation or two may miss a true claim.
        """
        generation = view.generation
        if view.model_committed or generation is None or not is_finished(generation, view.nodes):
            self._unnamed.pop(row.id, None)
            return None
        for attempt_id in [i for i, (_, at) in self._unnamed.items() if now - at > _NOTE_LIFETIME]:
            del self._unnamed[attempt_id]
        first, _ = self._unnamed.get(row.id, (now, now))
        self._unnamed[row.id] = first, now
        return first

    async def _write_update(
        self, observation: Observation, facts: AttemptInputs, head: Head | None
    ) -> tuple[AttemptInputs, GrowthOutlook]:
        """Handle the rare cases in a transaction: new HEAD, a budget, missing machines."""
        row, now = observation.row, observation.observed_at
        async with self.engine.begin() as conn:
            await leases.lock_claimed(conn, observation.claim)
            if head is not None:
                await heads.record(conn, row.job_id, head, now)
            await budgets.enforce_job_budget(conn, row, self.allowance, now)
            facts = (await attempt_facts.read_inputs(conn, [(row, observation.newest_path)]))[
                row.id
            ]
            arguments = (facts.attempt, row, observation.scale_set, facts.newest_generation, now)
            return facts, await outlook.growth_outlook(conn, *arguments)


def last_known_scale_set(row: AttemptRow) -> ScaleSet:
    """Return the scale set of an attempt with the machines that were seen last.

    A set that is refilled for the first time while machines come has FAILED with some of them.
    """
    is_provisioning = row.state is AttemptState.PROVISIONING and row.refilled_at is None
    phase = ScaleSetPhase.FAILED if is_provisioning else ScaleSetPhase.READY
    machines = tuple(Instance(instance_id="", vm_id=v, name="") for v in row.vm_ids)
    return ScaleSet(name=scale_set_name(row.id), phase=phase, instances=machines)


def _needs_update(
    facts: AttemptInputs, row: AttemptRow, scale_set: ScaleSet | None, head: Head | None
) -> bool:
    if facts.has_budget or row.stop_by is not None:
        return True
    if head and (head.model or facts.retained != heads.list_named(head)):
        return True
    return outlook.is_needed(facts.attempt, scale_set, facts.newest_generation)


def _newest_path(head: Head | None) -> str | None:
    return head.newest.path if head and head.newest else None


async def _read_head(store: BlobStore, row: AttemptRow) -> tuple[Head | None, StorageError | None]:
    """Return HEAD, or why it cannot be read: cancels and time limits must not depend on it."""
    if row.state not in ATTEMPT_WITH_NODES:
        return None, None
    try:
        head, _ = await heads.read(store, row.job_id)
    except StorageError as fault:
        return None, fault
    except Exception:  # nodes write HEAD: any failure to read it means that it is invalid
        log.exception("head.unreadable", extra={"job": row.job_id})
        return None, HeadUnreadable(heads.unreadable_message(row.job_id, _UNSTORABLE))
    return head, None


def _unreadable_since(
    row: AttemptRow, facts: AttemptInputs, fault: StorageError | None
) -> datetime | None:
    """Return since when an operator is asked to mend HEAD; None: not asked (yet)."""
    if not isinstance(fault, HeadUnreadable) or facts.help_event is None:
        return None
    is_open = operator_action.open_message("head", row.id, facts.help_event)
    return facts.help_event.at if is_open else None


def _attempt_view(
    observation: Observation, facts: AttemptInputs, head: Head | None, awake_since: datetime
) -> AttemptView:
    """Return the view of an attempt; a commit counts as a heartbeat of all members."""
    views = _node_views(observation, facts.records, awake_since)
    opened, ladder = facts.newest_generation, facts.oom_fallback
    generation = opened.generation if opened else None
    heard_at = _longest_silent_since(generation, facts.records)
    heartbeats = [t for t in (heard_at, facts.committed_at) if t is not None]
    generations = [g for g in facts.same_checkpoint if g.rung == ladder.rung] if head else []
    return AttemptView(
        scale_set=observation.scale_set,
        nodes=views,
        heard_at=wait_start(max(heartbeats), awake_since) if heard_at else None,
        generation=generation,
        opened_at=opened.opened_at if opened else None,
        fruitless=count_without_loss(generations, views),
        oom_fallback=ladder,
        halted_at=opened.halted_at if opened else None,
        halt_kind=opened.halt_kind if opened else None,
        stepped=generation is not None and _has_progressed(generation, facts.records),
        model_committed=head is not None and head.model is not None,
    )


def _node_views(
    observation: Observation, records: list[NodeRecord], awake_since: datetime
) -> list[NodeView]:
    present, now = set(observations.running_vm_ids(observation.scale_set)), observation.observed_at
    return [_node_view(r, r.vm_id in present, min(awake_since, now), now) for r in records]


def _node_view(record: NodeRecord, present: bool, awake_since: datetime, now: datetime) -> NodeView:
    since = record.unhealthy_at
    return node_view(
        record,
        present,
        quiet=now - wait_start(_from_timestamp(record.heard_at), awake_since),
        waiting=now - _from_timestamp(record.registered_at),
        unhealthy_for=now - _from_timestamp(since) if since else None,
    )


def _from_timestamp(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _longest_silent_since(
    generation: Generation | None, records: list[NodeRecord]
) -> datetime | None:
    """Return when the healthy member that has been silent for longest was last heard."""
    if generation is None:
        return None
    members = (r for r in records if generation.member(r.node_id))
    heartbeats = [r.heard_at for r in members if not r.unhealthy_at]  # the others are being deleted
    return datetime.fromtimestamp(min(heartbeats), UTC) if heartbeats else None


def _has_progressed(generation: Generation, records: list[NodeRecord]) -> bool:
    start = generation.checkpoint.step if generation.checkpoint else 0
    return any(r.generation == generation.number and r.step > start for r in records)
