"""Begins a job's next attempt: chooses the offering, puts the money aside, writes the row.

Looks at a live one as well: when its deadline demands it, the job leaves Spot in time.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.db import attempts, events, experience, leases, shortages, versions
from service.db.attempts import AttemptRow
from service.db.jobs import JobRow
from service.db.leases import Claim
from service.domain import choice
from service.domain.budget import Allowance
from service.domain.choice import NONE_LIVED, Choice, Place, Work
from service.domain.fleet import Offering, Price
from service.domain.ids import new_id
from service.domain.job import Job, LastAttempt
from service.domain.plan import Plan
from service.domain.situation import Decision, Held
from service.domain.states import ATTEMPT_OVER, AttemptState
from service.domain.terms import Terms
from service.operations import admission, budgets, deadlines
from service.operations.budgets import Refusal
from service.pricing.source import PriceSource, PricesUnavailable

_IDLE = timedelta(seconds=30)


@dataclass(frozen=True, kw_only=True)
class Starts:
    """Writes at most one attempt at a time."""

    engine: AsyncEngine
    prices: PriceSource
    allowance: Allowance
    now: Callable[[], datetime]

    async def start(self, claim: Claim, job: Job, row: JobRow, number: int) -> None:
        """Write the next attempt, or why none is begun now."""
        plan, work = Plan.from_dict(row.plan), _work(row)
        quoted = await self._quoted(plan)
        nodes = plan.chosen.nodes
        async with self.engine.connect() as conn:
            places, now = await self._places(conn, plan, quoted, work), self.now()
        choose = partial(choice.choose, work=work, job_id=job.id, now=now, most_nodes=nodes)
        found = await asyncio.to_thread(choose, places)  # long, so before anything is locked
        async with self.engine.begin() as conn:
            roomy = await admission.with_room(conn, job.id, places, nodes, now)
            found = found if roomy == places else choose(roomy)
            if found.look_at is not None:
                await self._wait(conn, claim, row, found.why, found.look_at)
                return
            place = await self._affordable(conn, job, plan, found.places)
            if isinstance(place, Place):
                await self._write(conn, claim, job, plan, place, number)
                await self._tell(conn, job, found, place)
            elif place.for_good:
                text = "No machines are asked for."
                await budgets.exhaust(conn, job.id, place.because, now, what_now=text)
                await leases.release(conn, claim, now, now)
            else:
                await self._wait(conn, claim, row, place.because, now + _IDLE)

    async def keep_in_time(self, row: JobRow, last: LastAttempt) -> None:
        """While an attempt trains: see whether its job can still wait for Spot's next eviction."""
        work = _work(row)
        if work.terms.deadline is None or row.at_risk_at or last.state in ATTEMPT_OVER:
            return
        plan = Plan.from_dict(row.plan)
        quoted = await self._quoted(plan)
        async with self.engine.begin() as conn:
            live = await attempts.find(conn, last.id)
            assert live is not None, "it was read with the job"
            now = self.now()
            places = await self._places(conn, plan, quoted, work)
            held = _held(live, plan, now)
            nodes = plan.chosen.nodes
            risk = await asyncio.to_thread(choice.at_risk, places, work, held, now, nodes)
            if risk is None:
                return
            if deadlines.wants_to_move(row, risk):
                risk = await self._if_paid_for(conn, row, plan, places, risk)
            await deadlines.warn(conn, row, risk, now)

    async def _if_paid_for(
        self,
        conn: AsyncConnection,
        row: JobRow,
        plan: Plan,
        places: Sequence[Place],
        risk: Decision,
    ) -> Decision:
        """The same, or to stay where a budget does not cover it: Spot would only be left for Spot.

        Nothing is put aside, since money is locked after the attempts that are told to go.
        """
        assert risk.candidate is not None, "it wants to move there"
        place = next(p for p in places if p.offering == risk.candidate.offering)
        refusal = await budgets.refusal(
            conn, row.id, *_asked(place, plan), self.allowance, self.now()
        )
        return deadlines.stays(risk, refusal.because) if refusal else risk

    async def _quoted(self, plan: Plan) -> Mapping[Offering, Price]:
        try:
            return await self.prices.prices([option.offering for option in plan.options])
        except PricesUnavailable:  # a recovery does not wait for a price list
            return {}

    async def _places(
        self, conn: AsyncConnection, plan: Plan, quoted: Mapping[Offering, Price], work: Work
    ) -> list[Place]:
        """The plan's offerings as they are now; what was lived through where there is a choice."""
        offerings = [option.offering for option in plan.options]
        refused = await shortages.of(conn, offerings)
        chooses = len(offerings) > 1 or work.terms.deadline is not None
        lived = await experience.of(conn, offerings, self.now()) if chooses else {}
        return [
            Place(
                option=option,
                price=quoted.get(option.offering, option.price),
                shortage=refused.get(option.offering),
                lived=lived.get(option.offering, NONE_LIVED),
            )
            for option in plan.options
        ]

    async def _affordable(
        self, conn: AsyncConnection, job: Job, plan: Plan, places: tuple[Place, ...]
    ) -> Place | Refusal:
        """The first that the budgets cover; else why the first of all is not."""
        refusals = []
        for place in places:
            refusal = await budgets.put_aside(
                conn,
                job.id,
                *_asked(place, plan),
                self.allowance,
                self.now(),
            )
            if refusal is None:
                return place
            refusals.append(refusal)
        return min(refusals, key=lambda refusal: refusal.for_good)

    async def _write(
        self,
        conn: AsyncConnection,
        claim: Claim,
        job: Job,
        plan: Plan,
        place: Place,
        number: int,
    ) -> None:
        last, now = job.last_attempt, self.now()
        if place.shortage is not None:
            await shortages.probe(conn, place.shortage, now)
        await attempts.add(
            conn,
            new_id("att", now),
            job.id,
            number,
            place.offering,
            place.price,
            now,
            instance_count=plan.chosen.nodes,
            processes_per_node=plan.chosen.processes_per_node,
            refusals=last.refusals if last else 0,
            duds=last.duds if last else 0,
        )
        # at_risk_at stays: where on demand was refused, Spot is not left a second time.
        fresh = {"waits_for": "", "moves_since": None}
        await versions.raise_one(conn, job.id, now, **fresh)  # the phase is another one
        await leases.release(conn, claim, now, now + _IDLE)

    async def _tell(self, conn: AsyncConnection, job: Job, found: Choice, place: Place) -> None:
        """Why there, and what that rests on; where there was a choice."""
        if found.record is None:
            return
        why = found.why
        if place is not found.places[0]:
            why = f"{why} The budget does not cover that: {place.offering} is asked for."
        await events.add(conn, job.id, self.now(), "job.placed", why, data=dict(found.record))

    async def _wait(
        self, conn: AsyncConnection, claim: Claim, row: JobRow, why: str, until: datetime
    ) -> None:
        """Say why, once, where the user looks."""
        if row.waits_for != why:
            await versions.raise_one(conn, row.id, self.now(), waits_for=why)
        await leases.release(conn, claim, self.now(), until)


def _asked(place: Place, plan: Plan) -> tuple[Decimal, timedelta]:
    """US dollars per hour of all machines there, and how long until they train."""
    wait = timedelta(seconds=place.option.recovery_seconds)
    return place.price.hourly * plan.chosen.nodes, wait


def _held(live: AttemptRow, plan: Plan, now: datetime) -> Held:
    booting = live.state is not AttemptState.RUNNING
    age = (now - live.created_at).total_seconds()
    cold = max(plan.chosen.recovery_seconds - age, 0.0) if booting else 0.0
    return Held(key=(live.offering, plan.chosen.nodes), age_s=age, cold_left_s=cold)


def _work(row: JobRow) -> Work:
    return Work(
        steps=row.total_steps - row.progress.get("step", 0),
        seconds_per_step=row.progress.get("seconds_per_step"),
        terms=Terms.from_dict(row.terms),
    )
