"""The one guarded write per move: only moves that exist, and never without their event."""

from datetime import timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from service.db.attempts import attempt_moves, attempts
from service.db.jobs import events, jobs
from service.domain.errors import IllegalMove
from service.domain.lifecycle import job as job_steps
from service.domain.lifecycle.attempt import MoveAttempt
from service.domain.states import ATTEMPT_MOVES, JOB_MOVES, AttemptState, JobState, Outcome
from tests.clock import Clock
from tests.integration.db.rows import add_attempt, add_job, claim_attempt, claim_job, transact

# The event of a move cannot be written: what the database would do when it is full, say.
REFUSE_EVENTS = """
    create or replace function refuse() returns trigger language plpgsql
    as $$ begin raise exception 'no room for events'; end $$;
    create trigger refuse before insert on events execute function refuse();
"""
ACCEPT_EVENTS = "drop trigger refuse on events; drop function refuse;"
ILLEGAL = [
    *((AttemptState.PENDING, to) for to in set(AttemptState) - ATTEMPT_MOVES[AttemptState.PENDING]),
    *((AttemptState.RUNNING, to) for to in set(AttemptState) - ATTEMPT_MOVES[AttemptState.RUNNING]),
]


@pytest.mark.parametrize(("was", "to"), sorted(ILLEGAL))
async def test_an_attempt_makes_no_move_that_is_not_in_the_table(
    engine: AsyncEngine, clock: Clock, was: AttemptState, to: AttemptState
) -> None:
    async with engine.begin() as conn:
        await add_job(conn, clock())
        await add_attempt(conn, clock(), state=was)
        claim, row = await claim_attempt(conn, clock())

        step = MoveAttempt(to=to, outcome=Outcome.EVICTED)
        with pytest.raises(IllegalMove):
            await attempt_moves.move(conn, claim, row, step, clock())

        found = await attempts.find(conn, "att-1")
        assert found is not None
        assert found.state is was


@pytest.mark.parametrize("to", sorted(set(JobState) - JOB_MOVES[JobState.QUEUED]))
async def test_a_job_makes_no_move_that_is_not_in_the_table(
    engine: AsyncEngine, clock: Clock, to: JobState
) -> None:
    async with engine.begin() as conn:
        await add_job(conn, clock())
        claim, job = await claim_job(conn, clock())

        with pytest.raises(IllegalMove):
            await jobs.move(conn, claim, job, job_steps.MoveJob(to=to), clock())


async def test_a_move_that_cannot_tell_of_itself_is_not_made(
    engine: AsyncEngine, clock: Clock
) -> None:
    async with engine.begin() as conn:
        await add_job(conn, clock())
        await add_attempt(conn, clock())
        claim, row = await claim_attempt(conn, clock())
        job_claim, job = await claim_job(conn, clock())
    step = MoveAttempt(to=AttemptState.TERMINATING, outcome=Outcome.EVICTED, reason="gone")
    runs = job_steps.MoveJob(to=JobState.RUNNING)
    await _run(engine, REFUSE_EVENTS)
    try:
        with pytest.raises(DBAPIError, match="no room"):
            await transact(engine, lambda c: attempt_moves.move(c, claim, row, step, clock()))
        with pytest.raises(DBAPIError, match="no room"):
            await transact(engine, lambda c: jobs.move(c, job_claim, job, runs, clock()))
    finally:
        await _run(engine, ACCEPT_EVENTS)
    async with engine.begin() as conn:
        before = (await attempts.find(conn, "att-1"), await jobs.find(conn, "job"))
        await attempt_moves.move(conn, claim, row, step, clock())  # the lease still holds
        told = await events.newest(conn, "job", after=None, limit=9)

    assert before[0] == row
    assert before[1] is not None
    assert before[1].state is JobState.QUEUED
    assert [e.code for e in told or []] == ["attempt.terminating"]


async def test_a_job_is_dated_when_it_first_runs_and_when_it_is_over(
    engine: AsyncEngine, clock: Clock
) -> None:
    first, path = clock(), (JobState.RUNNING, JobState.RECOVERING, JobState.RUNNING)
    async with engine.begin() as conn:
        await add_job(conn, clock())
        for to in (*path, JobState.CANCELLED):
            claim, job = await claim_job(conn, clock())
            await jobs.move(conn, claim, job, job_steps.MoveJob(to=to), clock())
            clock.advance(minutes=1)
        row = await jobs.find(conn, "job")

    assert row is not None
    assert row.started_at == first
    assert row.finished_at == first + timedelta(minutes=3)


async def test_a_job_that_is_over_is_never_claimed_again(engine: AsyncEngine, clock: Clock) -> None:
    async with engine.begin() as conn:
        await add_job(conn, clock(), state="cancelled", finished_at=clock())
        await add_attempt(conn, clock(), state="ended", outcome="cancelled", ended_at=clock())

        assert await jobs.claim_due(conn, clock(), 10) == []
        assert await attempts.claim_due(conn, clock(), 10) == []


async def _run(engine: AsyncEngine, script: str) -> None:
    async with engine.begin() as conn:
        await conn.execute(text(script))
