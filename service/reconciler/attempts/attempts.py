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
from service.reconciler.attempts.observer import ObservedAttempt, Observer, as_before
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
    deferral_of,
)
from service.storage.store import BlobStore, StorageError

log = logging.getLogger(__name__)
_SOON = timedelta(seconds=1)
_AFTER_MISCONFIGURATION = timedelta(seconds=60)
_FOR_A_PERSON = (Misconfigured, heads.HeadUnreadable)
# Deferred calls that need no look, each in the one state in which it can be right.
_BLIND = {
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
    watch: HeartbeatVisibility = field(default_factory=HeartbeatVisibility)
    lister: Lister | None = None  # None: every set is looked at by itself
    limited_cloud: RateLimitedCloud | None = None  # None: the cloud is called without limits
    allowance: Allowance = DEFAULT_ALLOWANCE

    async def claim(self, limit: int) -> list[Callable[[], Awaitable[None]]]:
        """Lease what is due; each lease comes as the step to take under it."""
        async with self.engine.begin() as conn:
            claims = await attempts.claim_due(conn, self.now(), limit)
        self.watch.round(self.now())
        for claim, _ in claims:
            LEASE_LAG.observe("attempts", value=(self.now() - claim.row.due_at).total_seconds())
        return [partial(self._reconcile, claim, row) for claim, row in claims]

    async def keep_watch(self) -> None:
        """Record that the database takes writes, also while no step is claimed.

        A standby, or a server that Azure has made read-only, refuses what nodes send.
        """
        async with self.engine.connect() as conn:
            if await database_health.takes_writes(conn):
                self.watch.round(self.now())

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
            await self._complain(row, fault)
            await self._release(claim, self._timeout(row, fault), [fault])
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
        listing = self._listing(row)
        known = scale_set_cache.known_scale_set(row)
        cloud: CloudProvider | ScaleSet | None
        cloud = scale_set_from_list(known, listing, now) if listing else None
        if cloud is None and not self._is_decided(claim, row, listing):
            cloud = self._cloud(row, claim)
        elif cloud is None and row.state is AttemptState.TERMINATING:
            cloud = as_before(row)
        found = await self._observer.look(cloud, claim, row, self.watch.since(now), now)
        for fault in found.faults:
            await self._complain(row, fault)
        if is_deletion_stuck(found.attempt, found.seen, now):
            await self._raise_alarm(row, blind=found.seen.cloud_unreachable)
        step = next_step(found.attempt, found.seen, now, self.pace)
        await self._follow(claim, row, found, step)
        if found.call and not found.faults and operator_action.is_resolved(found.call, row, step):
            async with self.engine.begin() as conn:
                await operator_action.resolve_action(conn, row, found.call, self.now())

    @property
    def _hears(self) -> bool:
        """Whether a fresh list of all scale sets reports changes, so that polls may be rare."""
        return self.lister is not None and self.lister.fresh() is not None

    def _cloud(self, row: AttemptRow, claim: Claim) -> CloudProvider:
        return self.limited_cloud.at(row.offering.pool, claim) if self.limited_cloud else self.cloud

    async def _cloud_after(
        self, first: Callable[[], Awaitable[None]], claim: Claim, row: AttemptRow
    ) -> CloudProvider:
        """Return the cloud for one call; ``first`` is awaited right before it, after its wait."""
        if self.limited_cloud is not None:
            return self.limited_cloud.at(row.offering.pool, claim, first)
        await first()
        return self.cloud

    def _is_decided(self, claim: Claim, row: AttemptRow, listing: ScaleSetList | None) -> bool:
        """Return whether a deferred creation or deletion is made, or waits, without a look.

        A look would take tokens. But machines of an accepted creation cost money, so its scale set
        is looked at once the list may show it. A refill depends on what its machines do meanwhile.
        """
        deferral = deferral_of(claim, self.now())
        if deferral is None or _BLIND.get(deferral.call) is not row.state:
            return False
        may_exist = listing is None or scale_set_name(row.id) in listing.sets
        return deferral.is_due(self.now()) or may_exist is (deferral.call is CloudCall.DELETE)

    def _listing(self, row: AttemptRow) -> ScaleSetList | None:
        """Return the fresh list of all scale sets, if the attempt's may be among them."""
        lister = self.lister if row.offering.engine is Engine.SCALE_SET else None
        return lister.fresh() if lister else None

    async def _follow(
        self, claim: Claim, row: AttemptRow, found: ObservedAttempt, step: AttemptStep
    ) -> None:
        """Take the step inside a trace span; a requeue needs no span."""
        if isinstance(step, RequeueAttempt):
            await self._take(claim, row, found, step)
            return
        with tracing.step(f"reconcile {type(step).__name__}", row.job_id, row.id):
            await self._take(claim, row, found, step)

    async def _take(
        self, claim: Claim, row: AttemptRow, found: ObservedAttempt, step: AttemptStep
    ) -> None:
        match step:
            case RequeueAttempt(delay):
                await self._requeue(claim, row, found, delay)
            case CreateScaleSet():
                await self._create(claim, row)
            case RefillScaleSet(useless):
                await self._refill(claim, row, found, useless)
            case DeleteScaleSet():
                with suppress(ScaleSetNotFound):
                    await self._cloud(row, claim).delete(found.attempt.scale_set_name)
                await self._release(claim, self.pace.poll)
            case HaltGeneration():
                await self._halt(claim, row, found, step)
            case OpenGeneration():
                await self._open(claim, row, found, step)
            case MoveAttempt():
                if step.outcome is Outcome.SUCCEEDED:
                    await self._opener.record_last_measurements(row)
                if serial_logs.is_boot_failure(row, found.seen, step):
                    await self._keep_serial_logs(row, found)
                await self._move(claim, row, step)

    async def _requeue(
        self, claim: Claim, row: AttemptRow, found: ObservedAttempt, delay: timedelta | None
    ) -> None:
        now = self.now()
        usual = requeue_delay.while_running(row, found, self.pace, now) if self._hears else None
        pause = self._pause(row, found, delay or usual)
        await self._release(claim, pause, found.faults)

    async def _keep_serial_logs(self, row: AttemptRow, found: ObservedAttempt) -> None:
        """Copy them without a claim: a refusal must not defer the deletion."""
        cloud = self.limited_cloud.at(row.offering.pool) if self.limited_cloud else self.cloud
        await serial_logs.keep_serial_logs(
            self.engine, cloud, self.store, row, found.seen, self.now()
        )

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
        self, claim: Claim, row: AttemptRow, found: ObservedAttempt, useless: tuple[str, ...]
    ) -> None:
        """Request machines in place of lost ones; report a refusal once and request again later.

        The remaining machines continue to train. A deferred request does not count as made.
        """
        intend = partial(self._intend_refill, claim, row, found.seen, useless)
        try:
            cloud = await self._cloud_after(intend, claim, row)
            await cloud.refill(scale_set_name(row.id), row.instance_count, useless)
        except (InsufficientCapacity, Misconfigured) as refusal:
            async with self.engine.begin() as conn:
                await refills.record_refusal(conn, row, str(refusal), self.now())
        await self._release(claim, _SOON)

    async def _intend_creation(self, claim: Claim) -> None:
        """Check the lease; after a wait for tokens, the provisioning timeout counts from now on."""
        async with self.engine.begin() as conn:
            if claim.row.deferred_call == CloudCall.CREATE:
                await leases.write(conn, claim, since=self.now())
            else:
                await leases.check(conn, claim)

    async def _intend_refill(
        self, claim: Claim, row: AttemptRow, seen: AttemptView, useless: tuple[str, ...]
    ) -> None:
        async with self.engine.begin() as conn:
            await refills.record_refill(conn, claim, row, seen, useless, self.now())

    async def _halt(
        self, claim: Claim, row: AttemptRow, found: ObservedAttempt, step: HaltGeneration
    ) -> None:
        generation = found.seen.generation
        assert generation is not None, "only a generation can be halted"
        deferral = deferral_after(claim, found.faults, self.now())
        await self._writes.halt(
            Halting(
                claim=claim,
                row=row,
                generation=generation,
                step=step,
                again=requeue_delay.while_stopping(found.seen, step, self.pace, self.now()),
                deferral=deferral,
            )
        )
        await self._give_back(claim, deferral)

    async def _open(
        self, claim: Claim, row: AttemptRow, found: ObservedAttempt, step: OpenGeneration
    ) -> None:
        done = await self._opener.open(claim, row, step, found.seen, found.newest_number)
        if isinstance(done, MoveAttempt):
            await self._move(claim, row, done)
        elif done:
            await self._give_back(claim)
        else:
            await self._release(claim, _SOON)

    async def _move(self, claim: Claim, row: AttemptRow, step: MoveAttempt) -> None:
        moving = ClaimedAttemptMove(claim=claim, row=row, step=step)
        await self._writes.move(moving)
        await self._give_back(claim)
        if measures.is_final_move(moving):
            await measures.observe_attempt_end(self.engine, row, self.now())

    async def _release(
        self, claim: Claim, delay: timedelta, faults: Collection[Exception] = ()
    ) -> None:
        deferral = deferral_after(claim, faults, self.now())
        with suppress(LeaseLost):
            await self._writes.release(claim, delay, deferral)
            await self._give_back(claim, deferral)

    async def _give_back(self, claim: Claim, kept: Deferral | None = None) -> None:
        """Give back tokens after the row has been written; without a database they are lost."""
        if self.limited_cloud is not None:
            with suppress(SQLAlchemyError):
                await self.limited_cloud.give_back(claim, kept)

    def _pause(self, row: AttemptRow, found: ObservedAttempt, usual: timedelta | None) -> timedelta:
        """Return the requeue delay; with a deferred call it ends when the call may be made."""
        pauses = [self._timeout(row, fault) for fault in found.faults]
        asks = any(isinstance(f, Deferred | ConcurrencyLimitReached) for f in found.faults)
        return max(pauses) if asks else max([usual or self.pace.poll, *pauses])

    def _timeout(self, row: AttemptRow, fault: Exception) -> timedelta:
        """Return the delay after a fault; an attempt with nodes is still polled as usual."""
        if isinstance(fault, Throttled):
            pause = timedelta(seconds=fault.retry_after)
            nodes = self.limited_cloud is not None and row.state in ATTEMPT_WITH_NODES
            return min(pause, self.pace.poll) if nodes else pause
        return _AFTER_MISCONFIGURATION if isinstance(fault, _FOR_A_PERSON) else self.pace.poll

    async def _complain(self, row: AttemptRow, fault: Exception) -> None:
        """Log a fault; if a person must act, add an event for the user."""
        if isinstance(fault, Deferred | ConcurrencyLimitReached) and not fault.code:
            return  # planned waits, thousands at once
        log.warning("attempt.blind", extra={"attempt": row.id, "cause": str(fault)})
        if isinstance(fault, _FOR_A_PERSON):
            async with self.engine.begin() as conn:
                await operator_action.request_action(conn, row, fault, self.now())

    async def _raise_alarm(self, row: AttemptRow, *, blind: bool) -> None:
        """Report once per attempt, to user and operator, that its machines still cost money."""
        facts = {"scale_set": scale_set_name(row.id), "region": row.offering.region}
        how = "is still there" if not blind else "may still be there (Azure does not answer)"
        async with self.engine.begin() as conn:
            if await events.has_event(conn, row.job_id, "attempt.will_not_die", facts):
                return
            await events.add(
                conn,
                row.job_id,
                self.now(),
                "attempt.will_not_die",
                f"Scale set {facts['scale_set']} in {facts['region']} {how} a quarter of"
                " an hour after its deletion was asked for, and costs money. Deleting goes on;"
                " look at it in the Azure portal: a lock, a policy or a fault of Azure holds it.",
                attempt_id=row.id,
                level="error",
                data=facts,
            )
        log.error("attempt.will_not_die", extra={"attempt": row.id, **facts})
