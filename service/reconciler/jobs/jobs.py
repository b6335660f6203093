"""Reconcile each job: prepare it, launch its attempts, and settle it after each of them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property, partial

from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from service.db.attempts import nodes
from service.db.core import leases
from service.db.core.leases import Claim, LeaseRenewer
from service.db.jobs import jobs
from service.db.jobs.job_moves import ClaimedJobMove
from service.db.jobs.jobs import JobRow
from service.db.queue import queue
from service.domain.errors import InvalidRequest, LeaseLost, NothingTrained
from service.domain.lifecycle.attempt import CANNOT_BOOT, FRUITLESS, NOT_RETRYABLE, failure_code
from service.domain.lifecycle.job import (
    NEVER_TRAINED,
    Job,
    MoveJob,
    PauseJob,
    PrepareJob,
    RequeueJob,
    StartAttempt,
    next_step,
)
from service.domain.money.budget import DEFAULT_ALLOWANCE, Allowance
from service.domain.money.cost import NO_EGRESS, Egress
from service.domain.queue.admission import NO_QUOTA, ProjectQuota
from service.domain.states import JobState, Outcome
from service.instruments import LEASE_LAG
from service.operations.jobs import deadlines
from service.operations.queue import admission
from service.pricing.source import PriceSource
from service.reconciler.attempts import measures
from service.reconciler.attempts.writes import Writes
from service.reconciler.cloud.capacity_history import CapacityHistoryCache
from service.reconciler.jobs.bulk_launch import BulkLauncher, PlainLaunch
from service.reconciler.jobs.launch import AttemptLauncher
from service.reconciler.jobs.preparation import Preparation
from service.storage.store import StorageError

log = logging.getLogger(__name__)
_INTERVAL = timedelta(seconds=30)  # between polls of a job without a hint
_QUEUED_POLL_INTERVAL = timedelta(minutes=10)  # between polls of a queued job
_AFTER_FAULT = timedelta(seconds=5)
_MAX_UNBATCHED = 20  # concurrent steps with own transactions: more would starve lease renewals
_MAX_PREPARATIONS = 10


@dataclass(frozen=True, kw_only=True)
class JobReconciler:
    """Reconciles every job that is due, one step at a time."""

    engine: AsyncEngine
    prices: PriceSource
    preparation: Preparation
    now: Callable[[], datetime]
    allowance: Allowance = DEFAULT_ALLOWANCE
    default_quota: ProjectQuota = NO_QUOTA  # of a project that was given none
    egress: Egress = NO_EGRESS
    histories: CapacityHistoryCache = field(default_factory=CapacityHistoryCache)

    async def claim(self, limit: int) -> list[Callable[[], Awaitable[None]]]:
        """Lease due jobs; return for each the step to take under its lease."""
        async with self.engine.begin() as conn:
            claims = await jobs.claim_due(conn, self.now(), limit)
        for claim, _ in claims:
            LEASE_LAG.observe("jobs", value=(self.now() - claim.row.due_at).total_seconds())
        return [partial(self._reconcile, claim, job) for claim, job in claims]

    async def run_once(self, limit: int = 20) -> int:
        """Take every step that is due; return how many were."""
        steps = await self.claim(limit)
        await asyncio.gather(*(step() for step in steps))
        return len(steps)

    async def _reconcile(self, claim: Claim, job: Job) -> None:
        try:
            async with self._leases.renewing(claim):
                await self._step(claim, job)
        except LeaseLost:
            log.info("job.lease_lost", extra={"job": job.id})
            await self._release(claim, timedelta(0))  # held if it only had news since
        except NothingTrained as fault:
            await self._fail_job(claim, job, fault.code, str(fault))
        except InvalidRequest as fault:
            await self._fail_job(claim, job, fault.code, str(fault), fault.param)
        except StorageError as fault:
            log.warning("job.step_failed", extra={"job": job.id, "cause": str(fault)})
            await self._release(claim, _AFTER_FAULT)
        except Exception:
            log.exception("job.step_failed", extra={"job": job.id})
            with suppress(DBAPIError):
                await self._release(claim, _AFTER_FAULT)

    async def _step(self, claim: Claim, job: Job) -> None:
        is_late = job.deadline is not None and job.deadline <= self.now()
        if is_late and await self._record_missed_deadline(claim):
            return
        match next_step(job, self.now()):
            case RequeueJob(delay):
                if job.last_attempt and job.deadline:
                    async with self._unbatched_slots:
                        row = await self._find_row(job)
                        await self._launcher.enforce_deadline(claim, row, job.last_attempt)
                await self._release(claim, min(delay or _INTERVAL, _INTERVAL))
            case PrepareJob():
                async with self._preparation_slots:
                    await self.preparation.step(claim, job)
            case StartAttempt(number=number):
                await self._start(claim, job, number)
            case PauseJob(reason):
                async with self._unbatched_slots:
                    await self._pause_job(claim, job, reason)
            case MoveJob(to=JobState.FAILED, reason=reason):
                assert job.last_attempt is not None
                async with self._unbatched_slots:
                    message = await self._add_error_log(job, reason)
                    code = failure_code(job.last_attempt.outcome, message)
                    await self._fail_job(claim, job, code, message)
            case MoveJob(to=JobState.SUCCEEDED) as move:
                async with self._unbatched_slots, self.engine.begin() as conn:
                    await jobs.move(conn, claim, job, move, self.now())
                measures.observe_job_move(claim, move.to, self.now())
            case MoveJob() as move:
                await self._writes.move_job(ClaimedJobMove(claim=claim, job=job, step=move))

    async def _record_missed_deadline(self, claim: Claim) -> bool:
        """Record once that the deadline has passed; return whether it was recorded now."""
        async with self._unbatched_slots, self.engine.begin() as conn:
            is_new = await deadlines.record_missed_deadline(
                conn, claim, jobs.parse_row(claim.row), self.now()
            )
            if is_new:
                await leases.release(conn, claim, self.now(), self.now())
            return is_new

    async def _start(self, claim: Claim, job: Job, number: int) -> None:
        """Launch the next attempt of an admitted job, or queue the job; admission hints its row."""
        row = jobs.parse_row(claim.row)
        plan = row.parsed_plan
        plain = PlainLaunch(claim=claim, job=job, row=row, plan=plan, number=number)
        if plain.is_plain and await self._bulk_launcher.start(plain):
            return
        async with self._unbatched_slots:
            await self._start_unbatched(claim, job, number)

    async def _start_unbatched(self, claim: Claim, job: Job, number: int) -> None:
        async with self.engine.connect() as conn:  # one for both: evictions come in thousands
            row, admitted = await jobs.find(conn, job.id), await queue.is_admitted(conn, job.id)
        assert row is not None
        requests = (row.cancel_requested_at is not None, row.pause_requested_at is not None)
        is_stale = requests != (job.cancel_requested, job.pause_requested)
        if is_stale or await self._launcher.handle_waiting_risk(claim, row):
            await self._release(claim, _INTERVAL)  # a request hints the row: due at once
            return
        if admitted or await self._request_admission(row):
            await self._launcher.start(claim, job, row, number)
        else:
            await self._release(claim, _QUEUED_POLL_INTERVAL)

    async def _request_admission(self, row: JobRow) -> bool:
        prices = await self._launcher.read_prices(row.parsed_plan)
        return await admission.request_admission(
            self.engine, row, self.default_quota, prices, self.now()
        )

    @cached_property
    def _leases(self) -> LeaseRenewer:
        return LeaseRenewer(self.engine, self.now)

    @cached_property
    def _writes(self) -> Writes:
        return Writes(engine=self.engine, now=self.now)

    @cached_property
    def _unbatched_slots(self) -> asyncio.Semaphore:
        return asyncio.Semaphore(_MAX_UNBATCHED)

    @cached_property
    def _preparation_slots(self) -> asyncio.Semaphore:
        """Limit new jobs only, so that jobs that have trained do not wait behind them."""
        return asyncio.Semaphore(_MAX_PREPARATIONS)

    @cached_property
    def _bulk_launcher(self) -> BulkLauncher:
        return BulkLauncher(engine=self.engine, prices=self.prices, now=self.now)

    @property
    def _launcher(self) -> AttemptLauncher:
        return AttemptLauncher(
            engine=self.engine,
            prices=self.prices,
            allowance=self.allowance,
            now=self.now,
            egress=self.egress,
            histories=self.histories,
        )

    async def _fail_job(
        self, claim: Claim, job: Job, code: str, message: str, param: str | None = None
    ) -> None:
        error = {"code": code, "message": message, "param": param}
        move = MoveJob(to=JobState.FAILED, reason=message.splitlines()[0])
        with suppress(LeaseLost):
            async with self.engine.begin() as conn:
                await jobs.move(conn, claim, job, move, self.now(), error=error)
            measures.observe_job_move(claim, move.to, self.now())
            for_operator = move.reason.startswith((NEVER_TRAINED, FRUITLESS, CANNOT_BOOT))
            for_operator = for_operator or code == Outcome.MISCONFIGURED
            level = logging.ERROR if for_operator else logging.WARNING  # else the user can fix it
            facts = {"job": job.id, "code": code, "cause": move.reason}
            log.log(level, "job.failed", extra=facts)

    async def _pause_job(self, claim: Claim, job: Job, reason: str) -> None:
        """Pause the job as a user would, so that an ordinary resume continues it."""
        move, now = MoveJob(to=JobState.PAUSED, reason=reason), self.now()
        with suppress(LeaseLost):
            async with self.engine.begin() as conn:
                await jobs.move(conn, claim, job, move, now, pause_requested_at=now)
            measures.observe_job_move(claim, move.to, now)
            log.error("job.paused", extra={"job": job.id, "cause": reason})

    async def _add_error_log(self, job: Job, reason: str) -> str:
        """Return the reason with the trainer's last error output."""
        assert job.last_attempt is not None
        async with self.engine.connect() as conn:
            tail = await nodes.last_error(conn, job.last_attempt.id)
        if tail and reason == NOT_RETRYABLE:
            return tail  # it says what to change
        return f"{reason}\n{tail}" if tail else reason

    async def _find_row(self, job: Job) -> JobRow:
        async with self.engine.connect() as conn:
            row = await jobs.find(conn, job.id)
        assert row is not None
        return row

    async def _release(self, claim: Claim, delay: timedelta) -> None:
        with suppress(LeaseLost):
            await self._writes.release(claim, delay)
