"""Reconcile each attempt with the cloud: claim, observe, decide, take one step, record."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property, partial

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from contract.choices import Engine
from service import tracing
from service.cloud.provider import (
    CloudError,
    CloudProvider,
    InsufficientCapacity,
    Misconfigured,
    ScaleSetNotFound,
    Throttled,
)
from service.db.attempts import attempts
from service.db.attempts.attempt_moves import ClaimedAttemptMove
from service.db.attempts.attempts import AttemptRow
from service.db.cloud import scale_set_cache
from service.db.core import database_health, leases
from service.db.core.leases import Claim, LeaseRenewer
from service.db.jobs import events
from service.domain.cloud.fleet import ScaleSet, scale_set_name
from service.domain.cloud.rate_limit import CloudCall, Deferral
from service.domain.cloud.scale_set_list import ScaleSetList, scale_set_from_list
from service.domain.errors import LeaseLost
from service.domain.lifecycle.attempt import (
    AttemptStep,
    AttemptTiming,
    AttemptView,
    CreateScaleSet,
    DeleteScaleSet,
    MoveAttempt,
    OpenGeneration,
    RefillScaleSet,
    RequeueAttempt,
    is_deletion_stuck,
)
from service.domain.lifecycle.attempt_steps import next_step
from service.domain.lifecycle.generation import HaltGeneration
from service.domain.money.budget import DEFAULT_ALLOWANCE, Allowance
from service.domain.states import ATTEMPT_WITH_NODES, AttemptState, Outcome
from service.instruments import LEASE_LAG
from service.operations.attempts import heads, refills
from service.operations.attempts.generations import Halting
from service.operations.monitoring import operator_action
from service.reconciler.attempts import measures, requeue_delay, serial_logs
from service.reconciler.attempts.observer import ObservedAttempt, Observer, last_known_scale_set
from service.reconciler.attempts.open_generation import GenerationOpener
from service.reconciler.attempts.scale_sets import SpecMaker
from service.reconciler.attempts.writes import Writes
from service.reconciler.cloud.concurrency_limit import ConcurrencyLimitReached
from service.reconciler.cloud.heartbeat_visibility import HeartbeatVisibility
from service.reconciler.cloud.lister import Lister
from service.reconciler.cloud.rate_limit import (
    Deferred,
    RateLimitedCloud,
    deferral_after,
    pending_deferral,
)
from service.storage.store import BlobStore, StorageError

log = logging.getLogger(__name__)
_SHORT_DELAY = timedelta(seconds=1)
_AFTER_MISCONFIGURATION = timedelta(seconds=60)
_NEEDS_OPERATOR = (Misconfigured, heads.HeadUnreadable)
# Deferred calls that need no look, each in the one state in which it can be right.
_STATE_BY_DEFERRED_CALL = {
    CloudCall.CREATE: AttemptState.PROVISIONING,
    CloudCall.DELETE: AttemptState.TERMINATING,
}


@dataclass(frozen=True, kw_only=True)
class AttemptReconciler:
    """Takes one step for every attempt that is due."""

    engine: AsyncEngine
    cloud: CloudProvider
    store: BlobStore
    specs: SpecMaker
    pace: AttemptTiming
    now: Callable[[], datetime]
    visibility: HeartbeatVisibility = field(default_factory=HeartbeatVisibility)
    lister: Lister | None = None  # None: every set is looked at by itself
    limited_cloud: RateLimitedCloud | None = None  # None: the cloud is called without limits
    allowance: Allowance = DEFAULT_ALLOWANCE

    async def claim(self, limit: int) -> list[Callable[[], Awaitable[None]]]:
        """Lease what is due; each lease comes as the step to take under it."""
        async with self.engine.begin() as conn:
            claims = await attempts.claim_due(conn, self.now(), limit)
        self.visibility.record_round(self.now())
        for claim, _ in claims:
            LEASE_LAG.observe("attempts", value=(self.now() - claim.row.due_at).total_seconds())
        return [partial(self._reconcile, claim, row) for claim, row in claims]

    async def check_database(self) -> None:
        """Record that the database takes writes, also while no step is claimed.

        A standby, or a server that Azure has made read-only, refuses what nodes send.
        """
        async with self.engine.connect() as conn:
            if await database_health.takes_writes(conn):
                self.visibility.record_round(self.now())

    async def run_once(self, limit: int = 20) -> int:
        """Take every step that is due; return how many were."""
        steps = await self.claim(limit)
        await asyncio.gather(*(step() for step in steps))
        return len(steps)

    async def _reconcile(self, claim: Claim, row: AttemptRow) -> None:
        try:
            async with self._leases.renewing(claim):
                await self._step(claim, row)
        except LeaseLost:
            log.info("attempt.lease_lost", extra={"attempt": row.id})
        except (CloudError, StorageError) as fault:
            await self._report_fault(row, fault)
            await self._release(claim, self._fault_delay(row, fault), [fault])
        except Exception as fault:
            log.exception("attempt.step_failed", extra={"attempt": row.id})
            with suppress(SQLAlchemyError):
                await self._release(claim, self.pace.poll, [fault])

    @cached_property
    def _leases(self) -> LeaseRenewer:
        return LeaseRenewer(self.engine, self.now)

    @cached_property
    def _observer(self) -> Observer:
        return Observer(engine=self.engine, store=self.store, allowance=self.allowance)

    @cached_property
    def _opener(self) -> GenerationOpener:
        return GenerationOpener(engine=self.engine, store=self.store, now=self.now)

    @cached_property
    def _writes(self) -> Writes:
        return Writes(engine=self.engine, now=self.now)

    async def _step(self, claim: Claim, row: AttemptRow) -> None:
        now = self.now()  # of the whole step: what is decided is true of what was seen then
        listing = self._fresh_list(row)
        cached = scale_set_cache.known_scale_set(row)
        cloud: CloudProvider | ScaleSet | None
        cloud = scale_set_from_list(cached, listing, now) if listing else None
        if cloud is None and not self._is_decided(claim, row, listing):
            cloud = self._cloud(row, claim)
        elif cloud is None and row.state is AttemptState.TERMINATING:
            cloud = last_known_scale_set(row)
        heard_since = self.visibility.heard_since(now)
        observed = await self._observer.observe(cloud, claim, row, heard_since, now)
        call, faults = observed.action_request, observed.faults
        for fault in faults:
            await self._report_fault(row, fault)
        if is_deletion_stuck(observed.attempt, observed.view, now):
            await self._raise_alarm(row, blind=observed.view.cloud_unreachable)
        step = next_step(observed.attempt, observed.view, now, self.pace)
        await self._take_traced_step(claim, row, observed, step)
        if call and not faults and operator_action.is_resolved(call, row, step):
            async with self.engine.begin() as conn:
                await operator_action.resolve_action(conn, row, call, self.now())

    @property
    def _has_fresh_list(self) -> bool:
        """Whether a fresh list of all scale sets reports changes, so that polls may be rare."""
        return self.lister is not None and self.lister.fresh_list() is not None

    def _cloud(self, row: AttemptRow, claim: Claim) -> CloudProvider:
        limited = self.limited_cloud
        return limited.region(row.offering.pool, claim) if limited else self.cloud

    async def _cloud_after(
        self, before_call: Callable[[], Awaitable[None]], claim: Claim, row: AttemptRow
    ) -> CloudProvider:
        """Return the cloud for one call; ``before_call`` is awaited after its wait."""
        if self.limited_cloud is not None:
            return self.limited_cloud.region(row.offering.pool, claim, before_call)
        await before_call()
        return self.cloud

    def _is_decided(self, claim: Claim, row: AttemptRow, listing: ScaleSetList | None) -> bool:
        """Return whether a deferred creation or deletion is made, or waits, without a look.

        A look would take tokens. But machines of an accepted creation cost money, so its scale set
        is looked at once the list may show it. A refill depends on what its machines do meanwhile.
        """
        deferral = pending_deferral(claim, self.now())
        if deferral is None or _STATE_BY_DEFERRED_CALL.get(deferral.call) is not row.state:
            return False
        may_exist = listing is None or scale_set_name(row.id) in listing.sets
        return deferral.is_due(self.now()) or may_exist is (deferral.call is CloudCall.DELETE)

    def _fresh_list(self, row: AttemptRow) -> ScaleSetList | None:
        """Return the fresh list of all scale sets, if the attempt's may be among them."""
        lister = self.lister if row.offering.engine is Engine.SCALE_SET else None
        return lister.fresh_list() if lister else None

    async def _take_traced_step(
        self, claim: Claim, row: AttemptRow, observed: ObservedAttempt, step: AttemptStep
    ) -> None:
        """Take the step inside a trace span; a requeue needs no span."""
        if isinstance(step, RequeueAttempt):
            await self._take_step(claim, row, observed, step)
            return
        with tracing.step(f"reconcile {type(step).__name__}", row.job_id, row.id):
            await self._take_step(claim, row, observed, step)

    async def _take_step(
        self, claim: Claim, row: AttemptRow, observed: ObservedAttempt, step: AttemptStep
    ) -> None:
        match step:
            case RequeueAttempt(delay):
                await self._requeue(claim, row, observed, delay)
            case CreateScaleSet():
                await self._create(claim, row)
            case RefillScaleSet(useless):
                await self._refill(claim, row, observed, useless)
            case DeleteScaleSet():
                with suppress(ScaleSetNotFound):
                    await self._cloud(row, claim).delete(observed.attempt.scale_set_name)
                await self._release(claim, self.pace.poll)
            case HaltGeneration():
                await self._halt(claim, row, observed, step)
            case OpenGeneration():
                await self._open(claim, row, observed, step)
            case MoveAttempt():
                if step.outcome is Outcome.SUCCEEDED:
                    await self._opener.record_last_measurements(row)
                if serial_logs.is_boot_failure(row, observed.view, step):
                    await self._copy_serial_logs(row, observed)
                await self._move(claim, row, step)

    async def _requeue(
        self, claim: Claim, row: AttemptRow, observed: ObservedAttempt, delay: timedelta | None
    ) -> None:
        if self._has_fresh_list and not delay:
            delay = requeue_delay.while_running(row, observed, self.pace, self.now())
        pause = self._requeue_delay(row, observed, delay)
        await self._release(claim, pause, observed.faults)

    async def _copy_serial_logs(self, row: AttemptRow, observed: ObservedAttempt) -> None:
        """Copy them without a claim: a refusal must not defer the deletion."""
        cloud = self.limited_cloud.region(row.offering.pool) if self.limited_cloud else self.cloud
        view, now = observed.view, self.now()
        await serial_logs.copy_serial_logs(self.engine, cloud, self.store, row, view, now)

    async def _create(self, claim: Claim, row: AttemptRow) -> None:
        """Create the scale set, if the lease still holds when the call may be made.

        The attempt may have ended while this worker stood still: nobody would delete the machines.
        """
        try:
            cloud = await self._cloud_after(partial(self._intend_creation, claim), claim, row)
            await cloud.create(self.specs.spec(row))
        except InsufficientCapacity as refusal:
            outcome = Outcome.NO_CAPACITY
            await self._move(
                claim,
                row,
                MoveAttempt(to=AttemptState.TERMINATING, outcome=outcome, reason=str(refusal)),
            )
        else:
            await self._release(claim, self.pace.poll)

    async def _refill(
        self, claim: Claim, row: AttemptRow, observed: ObservedAttempt, useless: tuple[str, ...]
    ) -> None:
        """Request machines in place of lost ones; report a refusal once and request again later.

        The remaining machines continue to train. A deferred request does not count as made.
        """
        intend = partial(self._intend_refill, claim, row, observed.view, useless)
        try:
            cloud = await self._cloud_after(intend, claim, row)
            await cloud.refill(scale_set_name(row.id), row.instance_count, useless)
        except (InsufficientCapacity, Misconfigured) as refusal:
            async with self.engine.begin() as conn:
                await refills.record_refusal(conn, row, str(refusal), self.now())
        await self._release(claim, _SHORT_DELAY)

    async def _intend_creation(self, claim: Claim) -> None:
        """Check the lease; after a wait for tokens, the provisioning timeout counts from now on."""
        async with self.engine.begin() as conn:
            if claim.row.deferred_call == CloudCall.CREATE:
                await leases.write(conn, claim, since=self.now())
            else:
                await leases.check(conn, claim)

    async def _intend_refill(
        self, claim: Claim, row: AttemptRow, view: AttemptView, useless: tuple[str, ...]
    ) -> None:
        async with self.engine.begin() as conn:
            await refills.record_refill(conn, claim, row, view, useless, self.now())

    async def _halt(
        self, claim: Claim, row: AttemptRow, observed: ObservedAttempt, step: HaltGeneration
    ) -> None:
        generation = observed.view.generation
        assert generation is not None, "only a generation can be halted"
        deferral = deferral_after(claim, observed.faults, self.now())
        await self._writes.halt(
            Halting(
                claim=claim,
                row=row,
                generation=generation,
                step=step,
                delay=requeue_delay.while_stopping(observed.view, step, self.pace, self.now()),
                deferral=deferral,
            )
        )
        await self._return_tokens(claim, deferral)

    async def _open(
        self, claim: Claim, row: AttemptRow, observed: ObservedAttempt, step: OpenGeneration
    ) -> None:
        result = await self._opener.open(claim, row, step, observed.view, observed.newest_number)
        if isinstance(result, MoveAttempt):
            await self._move(claim, row, result)
        elif result:
            await self._return_tokens(claim)
        else:
            await self._release(claim, _SHORT_DELAY)

    async def _move(self, claim: Claim, row: AttemptRow, step: MoveAttempt) -> None:
        move = ClaimedAttemptMove(claim=claim, row=row, step=step)
        await self._writes.move(move)
        await self._return_tokens(claim)
        if measures.is_final_move(move):
            await measures.observe_attempt_end(self.engine, row, self.now())

    async def _release(
        self, claim: Claim, delay: timedelta, faults: Collection[Exception] = ()
    ) -> None:
        deferral = deferral_after(claim, faults, self.now())
        with suppress(LeaseLost):
            await self._writes.release(claim, delay, deferral)
            await self._return_tokens(claim, deferral)

    async def _return_tokens(self, claim: Claim, retained: Deferral | None = None) -> None:
        """Give back tokens after the row has been written; without a database they are lost."""
        if self.limited_cloud is not None:
            with suppress(SQLAlchemyError):
                await self.limited_cloud.return_tokens(claim, retained)

    def _requeue_delay(
        self, row: AttemptRow, observed: ObservedAttempt, delay: timedelta | None
    ) -> timedelta:
        """Return the requeue delay; with a deferred call it ends when the call may be made."""
        pauses = [self._fault_delay(row, fault) for fault in observed.faults]
        deferred = any(isinstance(f, Deferred | ConcurrencyLimitReached) for f in observed.faults)
        return max(pauses) if deferred else max([delay or self.pace.poll, *pauses])

    def _fault_delay(self, row: AttemptRow, fault: Exception) -> timedelta:
        """Return the delay after a fault; an attempt with nodes is still polled as usual."""
        if isinstance(fault, Throttled):
            pause = timedelta(seconds=fault.retry_after)
            nodes = self.limited_cloud is not None and row.state in ATTEMPT_WITH_NODES
            return min(pause, self.pace.poll) if nodes else pause
        return _AFTER_MISCONFIGURATION if isinstance(fault, _NEEDS_OPERATOR) else self.pace.poll

    async def _report_fault(self, row: AttemptRow, fault: Exception) -> None:
        """Log a fault; if a person must act, add an event for the user."""
        if isinstance(fault, Deferred | ConcurrencyLimitReached) and not fault.code:
            return  # planned waits, thousands at once
        log.warning("attempt.blind", extra={"attempt": row.id, "cause": str(fault)})
        if isinstance(fault, _NEEDS_OPERATOR):
            async with self.engine.begin() as conn:
                await operator_action.request_action(conn, row, fault, self.now())

    async def _raise_alarm(self, row: AttemptRow, *, blind: bool) -> None:
        """Report once per attempt, to user and operator, that its machines still cost money."""
        facts = {"scale_set": scale_set_name(row.id), "region": row.offering.region}
        presence = "is still there" if not blind else "may still be there (Azure does not answer)"
        async with self.engine.begin() as conn:
            if await events.has_event(conn, row.job_id, "attempt.will_not_die", facts):
                return
            await events.add(
                conn,
                row.job_id,
                self.now(),
                "attempt.will_not_die",
                f"Scale set {facts['scale_set']} in {facts['region']} {presence} a quarter of"
                " an hour after its deletion was asked for, and costs money. Deleting goes on;"
                " look at it in the Azure portal: a lock, a policy or a fault of Azure holds it.",
                attempt_id=row.id,
                level="error",
                data=facts,
            )
        log.error("attempt.will_not_die", extra={"attempt": row.id, **facts})
