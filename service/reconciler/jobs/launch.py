"""Launch a job's next attempt: choose the offering, reserve the money, write the row.

Also moves a live attempt: off Spot when the deadline demands it, and from on demand back to Spot.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.db.attempts import attempts, machine_history
from service.db.attempts.attempts import AttemptRow
from service.db.core import leases
from service.db.core.leases import Claim
from service.db.jobs import events, job_versions
from service.db.jobs.jobs import JobRow
from service.db.spot import capacity_outages, market
from service.db.storage import checkpoints
from service.db.storage.checkpoints import CheckpointRow
from service.domain.cloud.fleet import Offering, Price
from service.domain.ids import new_id
from service.domain.lifecycle.job import Job, LastAttempt
from service.domain.money.budget import Allowance
from service.domain.money.cost import NO_EGRESS, Egress
from service.domain.placement import offering_choice, placement_scores
from service.domain.placement.capacity_history import NO_HISTORY, CapacityHistory
from service.domain.placement.offering_choice import (
    NO_EXPERIENCE,
    OfferingChoice,
    OfferingState,
    RemainingWork,
)
from service.domain.placement.policy_state import CurrentHold, Decision
from service.domain.planning import checkpoint_interval
from service.domain.planning.plan import Plan
from service.domain.spot.capacity_traces import spot_pool_of
from service.domain.states import ATTEMPT_WITH_OUTCOME, AttemptState, CapacityType
from service.operations.jobs import deadlines
from service.operations.money import budgets
from service.operations.queue import admission
from service.pricing.source import PriceSource, known_prices
from service.reconciler.cloud.capacity_history import CapacityHistoryCache

_INTERVAL = timedelta(seconds=30)
_SHORT_DELAY = timedelta(seconds=1)
_MAX_CHOICES = 3  # new choices while other jobs take the cores


@dataclass(frozen=True, kw_only=True)
class AttemptLauncher:
    """Writes a job's next attempt, or publishes why the job waits."""

    engine: AsyncEngine
    prices: PriceSource
    allowance: Allowance
    now: Callable[[], datetime]
    egress: Egress = NO_EGRESS
    histories: CapacityHistoryCache = field(default_factory=CapacityHistoryCache)

    async def start(self, claim: Claim, job: Job, row: JobRow, number: int) -> None:
        """Write the next attempt, or the reason why none starts now."""
        plan = row.parsed_plan
        work, states, history = await self._read_remaining_work(row, plan)
        now, nodes = self.now(), plan.chosen.nodes
        choose = partial(
            offering_choice.choose,
            work=work,
            job_id=job.id,
            now=now,
            most_nodes=nodes,
            history=history,
        )
        states_now = states
        for _ in range(_MAX_CHOICES):
            choice = await asyncio.to_thread(choose, states_now)  # slow, so before any lock
            async with self.engine.begin() as conn:
                before = states_now
                states_now = await admission.mark_full_regions(conn, job.id, states, nodes, now)
                if _offerings_without_cores(states_now) != _offerings_without_cores(before):
                    continue
                if choice.check_at is None:
                    await self._start_attempt(conn, claim, job, row, choice, number)
                elif not await self._requeue_if_full(conn, claim, row, states_now):
                    reason, at = choice.why, choice.again_at
                    await self._publish_wait(conn, claim, row, reason, at, until=choice.check_at)
                return
        await self._retry_soon(claim)

    async def _start_attempt(
        self,
        conn: AsyncConnection,
        claim: Claim,
        job: Job,
        row: JobRow,
        choice: OfferingChoice,
        number: int,
    ) -> None:
        """Start an attempt at the chosen offering, if the budgets cover it."""
        plan, now = row.parsed_plan, self.now()
        result = await self._reserve_money(conn, job, plan, choice.states)
        if isinstance(result, OfferingState):
            if await self._write_attempt(conn, claim, job, row, result, number):
                await self._record_choice(conn, job, choice, result)
        elif result.is_permanent:
            await leases.lock_claimed(conn, claim, unchanged=True)
            text = "No machines are requested."
            await budgets.mark_exhausted(conn, job.id, result.reason, now, what_now=text)
            await leases.release(conn, claim, now, now)
        else:
            await self._publish_wait(conn, claim, row, result.reason, None, until=now + _INTERVAL)

    async def _requeue_if_full(
        self, conn: AsyncConnection, claim: Claim, row: JobRow, states: Sequence[OfferingState]
    ) -> bool:
        """Requeue the job if others have taken its cores; return whether it was requeued."""
        now = self.now()
        await leases.lock_claimed(conn, claim, unchanged=True)
        if not await admission.requeue_job(conn, row, states, now):
            return False
        await job_versions.raise_version(conn, row.id, now, waits_for="")
        await leases.release(conn, claim, now, now + _INTERVAL)
        return True

    async def _retry_soon(self, claim: Claim) -> None:
        """Retry soon: other jobs took cores during each of the tries."""
        async with self.engine.begin() as conn:
            await leases.release(conn, claim, self.now(), self.now() + _SHORT_DELAY)

    async def enforce_deadline(self, claim: Claim, row: JobRow, last: LastAttempt) -> None:
        """Move a training attempt: off Spot for the deadline, or from on demand back to Spot."""
        if row.constraints.deadline is None or last.state in ATTEMPT_WITH_OUTCOME:
            return
        plan = row.parsed_plan
        async with self.engine.connect() as conn:
            live = await attempts.find(conn, last.id)
        assert live is not None, "it was read with the job"
        if live.offering.capacity_type is CapacityType.SPOT:
            if not row.at_risk_at:
                await self._leave_spot(claim, row, plan, live)
        elif live.state is AttemptState.RUNNING and deadlines.can_return_to_spot(row):
            await self._return_to_spot(claim, row, plan, live)

    async def _leave_spot(self, claim: Claim, row: JobRow, plan: Plan, live: AttemptRow) -> None:
        work, prices = self._remaining_work(row), await self.read_prices(plan)
        async with self.engine.connect() as conn:
            states, history = await self._read_states(conn, plan, prices, work)
        now = self.now()
        arguments = (work, _current_hold(live, plan, now), now, plan.chosen.nodes, history)
        risk = await asyncio.to_thread(offering_choice.deadline_risk, states, *arguments)
        if risk is not None:
            await self._handle_risk(claim, row, plan, states, risk)

    async def handle_waiting_risk(self, claim: Claim, row: JobRow) -> bool:
        """Handle the deadline risk of a job that waits for Spot; return whether there is one.

        Skips a job that switches to on demand: its next attempt is requested there in time.
        """
        terms, plan = row.constraints, row.parsed_plan
        if terms.deadline is None or terms.switches or row.at_risk_at:
            return False
        work, states, history = await self._read_remaining_work(row, plan)
        arguments = (work, None, self.now(), plan.chosen.nodes, history)
        risk = await asyncio.to_thread(offering_choice.deadline_risk, states, *arguments)
        if risk is not None:
            await self._handle_risk(claim, row, plan, states, risk)
        return risk is not None

    async def _handle_risk(
        self, claim: Claim, row: JobRow, plan: Plan, states: Sequence[OfferingState], risk: Decision
    ) -> None:
        async with self.engine.begin() as conn:
            if deadlines.should_move(row, risk):
                risk = await self._stay_without_budget(conn, row, plan, states, risk)
            await deadlines.handle_risk(conn, claim, row, risk, self.now())

    async def _return_to_spot(
        self, claim: Claim, row: JobRow, plan: Plan, live: AttemptRow
    ) -> None:
        """Return to Spot if signals say that it has capacity, and cores and money suffice.

        The budget must cover on demand too: if Spot refuses, the job starts there again.
        """
        work, prices = self._remaining_work(row), await self.read_prices(plan)
        async with self.engine.connect() as conn:
            checkpoint = await _newest_checkpoint(conn, row.id)
            states, history = await self._read_states(conn, plan, prices, work, checkpoint)
        now, nodes = self.now(), plan.chosen.nodes
        arguments = (work, _current_hold(live, plan, now), now, nodes, history)
        move = await asyncio.to_thread(offering_choice.back_to_spot, states, *arguments)
        if move is None:
            return
        async with self.engine.begin() as conn:
            states_now = await admission.mark_full_regions(conn, row.id, states, nodes, now)
            if move.candidate and move.candidate.offering in _offerings_without_cores(states_now):
                return
            move = await self._stay_without_budget(conn, row, plan, states, move)
            net = move.net and await self._budget_refusal(
                conn, row, plan, states, move.net.offering
            )
            if move.candidate is not None and net is None:
                await deadlines.return_to_spot(conn, claim, row, move, now)

    async def _stay_without_budget(
        self,
        conn: AsyncConnection,
        row: JobRow,
        plan: Plan,
        states: Sequence[OfferingState],
        risk: Decision,
    ) -> Decision:
        """Return ``risk``, or the decision to stay if no budget covers the move.

        Reserves no money: budgets are locked after the attempts that must stop.
        """
        assert risk.candidate is not None, "it wants to move there"
        refusal = await self._budget_refusal(conn, row, plan, states, risk.candidate.offering)
        return deadlines.stay_without_budget(risk, refusal.reason) if refusal else risk

    async def _budget_refusal(
        self,
        conn: AsyncConnection,
        row: JobRow,
        plan: Plan,
        states: Sequence[OfferingState],
        offering: Offering,
    ) -> budgets.BudgetRefusal | None:
        state = next(s for s in states if s.offering == offering)
        return await budgets.find_refusal(
            conn, row.id, *_reservation(state, plan), self.allowance, self.now()
        )

    def _remaining_work(self, row: JobRow, steps_done: int | None = None) -> RemainingWork:
        """Return the work left after ``steps_done`` steps.

        None: the work left of the running attempt, which saves before it stops."""
        step = row.progress.get("step", 0) if steps_done is None else steps_done
        return RemainingWork(
            steps=row.total_steps - step,
            seconds_per_step=row.progress.get("seconds_per_step"),
            terms=row.constraints,
            leave_s=self.allowance.save.total_seconds(),
            checkpoint_s=checkpoint_interval.spot_interval(row.progress),
        )

    async def _read_remaining_work(
        self, row: JobRow, plan: Plan
    ) -> tuple[RemainingWork, list[OfferingState], CapacityHistory]:
        """Return the work left from the newest checkpoint on, and the offerings for it."""
        prices = await self.read_prices(plan)
        async with self.engine.connect() as conn:
            checkpoint = await _newest_checkpoint(conn, row.id)
            work = self._remaining_work(row, checkpoint.step if checkpoint else 0)
            return work, *await self._read_states(conn, plan, prices, work, checkpoint)

    async def read_prices(self, plan: Plan) -> Mapping[Offering, Price]:
        """Return the current prices of the plan's offerings; empty if no list can be read."""
        return await known_prices(self.prices, [option.offering for option in plan.options])

    async def _read_states(
        self,
        conn: AsyncConnection,
        plan: Plan,
        prices: Mapping[Offering, Price],
        work: RemainingWork,
        saved: CheckpointRow | None = None,
    ) -> tuple[list[OfferingState], CapacityHistory]:
        """Return the plan's offerings now; with more than one, also their capacity history."""
        offerings = [option.offering for option in plan.options]
        refused = await capacity_outages.open_shortages(conn, offerings)
        now = self.now()
        nodes = plan.chosen.nodes
        chooses = len(offerings) > 1 or work.terms.deadline is not None
        holds = await machine_history.holds_by_offering(conn, offerings, now) if chooses else {}
        history = await self.histories.read(conn, offerings, nodes, now) if chooses else NO_HISTORY
        scores = await market.scores(conn, map(spot_pool_of, offerings)) if chooses else {}
        score_of = {o: scores.get(spot_pool_of(o)) for o in offerings}
        states = [
            OfferingState(
                option=option,
                price=prices.get(option.offering, option.price),
                shortage=refused.get(option.offering),
                experience=holds.get(option.offering, NO_EXPERIENCE),
                has_signals=placement_scores.is_current(score_of[option.offering], nodes, now),
                likely_since=placement_scores.likely_since(score_of[option.offering], nodes, now),
                egress=self.egress.dollars(option.offering.region, saved.size if saved else 0),
            )
            for option in plan.options
        ]
        return placement_scores.order_by_score(states, scores, nodes, now), history

    async def _reserve_money(
        self, conn: AsyncConnection, job: Job, plan: Plan, states: tuple[OfferingState, ...]
    ) -> OfferingState | budgets.BudgetRefusal:
        """Return the first offering that the budgets cover; else the most hopeful refusal."""
        refusals = []
        for state in states:
            refusal = await budgets.reserve_money(
                conn, job.id, *_reservation(state, plan), self.allowance, self.now()
            )
            if refusal is None:
                return state
            refusals.append(refusal)
        return min(refusals, key=lambda refusal: refusal.is_permanent)

    async def _write_attempt(
        self,
        conn: AsyncConnection,
        claim: Claim,
        job: Job,
        row: JobRow,
        state: OfferingState,
        number: int,
    ) -> bool:
        """Write the attempt; return False if another job has probed the offering meanwhile.

        Then the job is requeued soon, for a new choice. Raises LeaseLost, and writes nothing, if
        the job has had a request or news since it was claimed.
        """
        await leases.lock_claimed(conn, claim, unchanged=True)
        last, now, plan = job.last_attempt, self.now(), row.parsed_plan
        shortage, nodes = state.shortage, plan.chosen.nodes
        if shortage is not None and not await capacity_outages.probe(conn, shortage, nodes, now):
            await leases.release(conn, claim, now, now + _SHORT_DELAY)
            return False
        await attempts.add(
            conn,
            new_id("att", now),
            job.id,
            number,
            state.offering,
            state.price,
            now,
            instance_count=nodes,
            processes_per_node=plan.chosen.processes_per_node,
            refusals=last.refusals if last else 0,
            duds=last.duds if last else 0,
        )
        await admission.reserve_cores(conn, row, state.offering)
        # at_risk_at stays: where on demand was refused, Spot is not left a second time.
        cleared = {"waits_for": "", "moves_since": None, "returns_since": None}
        await job_versions.raise_version(conn, job.id, now, **cleared)  # the phase has changed
        await leases.release(conn, claim, now, now + _INTERVAL)
        return True

    async def _record_choice(
        self, conn: AsyncConnection, job: Job, choice: OfferingChoice, state: OfferingState
    ) -> None:
        """Add an event with the reason for the choice, if there was one."""
        if choice.record is None:
            return
        reason = choice.why
        if state is not choice.states[0]:
            reason = f"{reason} The budget does not cover that, so {state.offering} is requested."
        await events.add(conn, job.id, self.now(), "job.placed", reason, data=dict(choice.record))

    async def _publish_wait(
        self,
        conn: AsyncConnection,
        claim: Claim,
        row: JobRow,
        reason: str,
        again_at: datetime | None,
        *,
        until: datetime,
    ) -> None:
        """Publish once why the job waits and when it asks again; release the lease until then."""
        if (row.waits_for, row.asks_again_at) != (reason, again_at):
            published = {"waits_for": reason, "asks_again_at": again_at}
            await job_versions.raise_version(conn, row.id, self.now(), **published)
        await leases.release(conn, claim, self.now(), until)


def _reservation(state: OfferingState, plan: Plan) -> tuple[Decimal, timedelta]:
    """Return US dollars per hour of all machines there, and the time until they train."""
    wait = timedelta(seconds=state.option.recovery_seconds)
    return state.price.hourly * plan.chosen.nodes, wait


def _current_hold(live: AttemptRow, plan: Plan, now: datetime) -> CurrentHold:
    booting = live.state is not AttemptState.RUNNING
    age = (now - live.created_at).total_seconds()
    boot_left = max(plan.chosen.recovery_seconds - age, 0.0) if booting else 0.0
    return CurrentHold(key=(live.offering, plan.chosen.nodes), age_s=age, cold_left_s=boot_left)


async def _newest_checkpoint(conn: AsyncConnection, job_id: str) -> CheckpointRow | None:
    """Return the newest checkpoint, from which the next attempt would resume."""
    page = await checkpoints.newest(conn, job_id, after=None, limit=1)
    return page[0] if page else None


def _offerings_without_cores(states: Sequence[OfferingState]) -> set[Offering]:
    """Return the offerings whose quota of cores is used up."""
    return {s.offering for s in states if s.shortage is not None and not s.shortage.in_a_row}
