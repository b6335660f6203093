"""What becomes of jobs whose money, or its project's, is changed while something goes on."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from service.db.jobs import job_moves, jobs
from service.db.jobs.job_moves import ClaimedJobMove
from service.db.money import budgets as caps
from service.db.schema import tables
from service.domain.lifecycle.constraints import JobConstraints
from service.domain.lifecycle.job import MoveJob, next_step
from service.domain.states import JobState
from service.operations.money import budgets
from service.reconciler.jobs.budgets import ProjectBudgets
from tests.integration.db.rows import blocked
from tests.integration.money.test_budgets import start_job, stop_nodes, train_on, with_budget
from tests.nodes.scripted_node import boot, say_all
from tests.waiting import until
from tests.world import World
from trainer.contract import NodePhase

JOBS = "/v1/fine_tuning/jobs"


async def patch_terms(world: World, job_id: str, **infrastructure: Any) -> httpx.Response:  # noqa: ANN401
    """Other terms."""
    body = {"infrastructure": infrastructure}
    return await world.call("PATCH", f"{JOBS}/{job_id}", json=body)


async def give_budget(
    world: World, dollars: int | None, clock_offset: timedelta = timedelta(0)
) -> list[str]:
    """Another budget of the project; the jobs that whoever gives it is to weigh again.

    ``clock_offset``: of ours is the clock of who gives it.
    """
    cap, now = None if dollars is None else Decimal(dollars), world.clock() + clock_offset
    async with world.engine.begin() as conn:
        return await budgets.set_project(conn, "tests", cap, now, None)


def sweep(world: World) -> ProjectBudgets:
    """Of the budgets of projects."""
    return ProjectBudgets(engine=world.engine, allowance=world.attempts.allowance, now=world.clock)


async def wait_for_locks(world: World, count: int) -> None:
    """Until so many transactions wait for a row."""

    await until(lambda: blocked(world.engine), lambda count_blocked: count_blocked == count)


async def test_once_a_budget_is_lifted_nodes_go_on_as_if_there_had_never_been_one(
    world: World,
) -> None:
    job, nodes, number = await start_job(world, **with_budget("100"))
    await train_on(world, nodes, number, minutes=5)
    patched = await patch_terms(world, job, budget=None)
    await world.tick(2)
    world.clock.advance(minutes=31)

    response = await nodes[0].say(NodePhase.RUNNING, number, step=1)

    assert patched.status_code == 200
    assert response.json()["stop_by"] == (world.clock() + world.parts.outage).timestamp()


async def test_other_terms_are_no_way_round_the_budget_of_the_project(world: World) -> None:
    await give_budget(world, 40)
    job, nodes, number = await start_job(world, nodes=2)
    await train_on(world, nodes, number, minutes=92)
    stopped = await sweep(world).run_once()

    await patch_terms(world, job, deadline=int((world.clock() + timedelta(hours=9)).timestamp()))

    view = await world.job(job)
    assert stopped == [job]
    assert view["status_reason"]["code"] == "budget_exhausted"


async def test_changed_terms_repeat_no_budget_threshold(world: World) -> None:
    job, nodes, number = await start_job(world, **with_budget("100"))
    await train_on(world, nodes, number, minutes=180)
    await patch_terms(world, job, priority="high")
    await train_on(world, nodes, number, minutes=1)

    assert (await world.event_codes(job)).count("job.budget_threshold") == 1


async def test_two_concurrent_changes_of_terms_are_both_kept(world: World) -> None:
    job = (await world.submit())["id"]
    changes = ({"budget": {"amount": "90"}}, {"max_price": {"amount": "5"}})
    async with world.engine.begin() as conn:
        await conn.execute(
            select(tables.jobs.c.id).where(tables.jobs.c.id == job).with_for_update()
        )
        tasks = [asyncio.create_task(patch_terms(world, job, **terms)) for terms in changes]
        await wait_for_locks(world, 2)
    responses = await asyncio.gather(*tasks)

    infrastructure = (await world.job(job))["infrastructure"]
    assert [a.status_code for a in responses] == [200, 200]
    assert infrastructure["budget"]["amount"].startswith("90")
    assert infrastructure["max_price"]["amount"].startswith("5")


async def test_a_job_that_is_late_already_can_be_given_more_money(world: World) -> None:
    deadline = int((world.clock() + timedelta(minutes=5)).timestamp())
    limits = {"deadline": deadline, "on_deadline_risk": "notify", "nodes": 2}
    job = (await world.submit(infrastructure=limits))["id"]
    world.clock.advance(minutes=10)

    change = await patch_terms(world, job, budget={"amount": "90"})
    later_but_past = await patch_terms(world, job, deadline=deadline + 1)

    assert change.status_code == 200, change.text
    assert later_but_past.status_code == 400


async def test_a_larger_budget_that_comes_during_a_sweep_is_not_overlooked(world: World) -> None:
    await give_budget(world, 40)
    job, nodes, number = await start_job(world, nodes=2)
    await train_on(world, nodes, number, minutes=92)
    async with world.engine.begin() as conn:
        await conn.execute(
            select(tables.jobs.c.id).where(tables.jobs.c.id == job).with_for_update()
        )
        sweeping = asyncio.create_task(sweep(world).run_once())
        await wait_for_locks(world, 1)
        changed_job = await give_budget(world, 400)
    stopped = await sweeping

    assert (changed_job, stopped) == ([], [])
    assert "job.budget_exhausted" not in await world.event_codes(job)


async def test_a_larger_budget_that_is_answered_during_a_look_is_not_overwritten(
    world: World,
) -> None:
    job, nodes, number = await start_job(world, **with_budget("40"))
    world.clock.advance(minutes=92)
    await say_all(nodes, NodePhase.RUNNING, number, step=1)
    async with world.engine.begin() as conn:
        row = await conn.execute(
            select(tables.jobs.c.terms).where(tables.jobs.c.id == job).with_for_update()
        )
        before = JobConstraints.from_dict(row.scalar_one())
        reconciling = asyncio.create_task(world.attempts.run_once())
        await wait_for_locks(world, 1)
        larger = replace(before, budget=Decimal(400))
        await caps.set_terms(conn, job, before, larger, world.clock())
    await reconciling
    await world.tick(2, seconds=1)

    codes = await world.event_codes(job)
    assert not {"job.budget_exhausted", "job.budget_threshold"} & set(codes)
    assert (await world.job(job))["status"] == "running"


async def test_a_job_that_was_given_money_since_it_was_looked_at_is_not_ended(world: World) -> None:
    job, nodes, number = await start_job(world, **with_budget("40", on_exhausted="cancel"))
    await train_on(world, nodes, number, minutes=92)
    await say_all(nodes, NodePhase.STOPPED, number, step=1)
    await world.attempts.run_once()
    async with world.engine.begin() as conn:
        ((claim, row),) = await jobs.claim_due(conn, world.clock() + timedelta(minutes=1), 1)
    step = next_step(row, world.clock())
    assert isinstance(step, MoveJob)
    change = await patch_terms(world, job, budget={"amount": "400"})
    async with world.engine.begin() as conn:
        moved = await job_moves.move_all(
            conn, [ClaimedJobMove(claim=claim, job=row, step=step)], world.clock()
        )

    assert (step.to, change.status_code, moved) == (JobState.CANCELLED, 200, set())


@pytest.mark.parametrize("dollars", [500, None])
async def test_jobs_that_a_larger_budget_of_their_project_did_not_reach_are_weighed_again(
    world: World, dollars: int | None
) -> None:
    await give_budget(world, 5)
    job = (await world.submit())["id"]
    await world.tick(4)
    paused = await world.job(job)
    await sweep(world).run_once()
    await world.tick(2)
    view = await world.job(job)

    await give_budget(world, dollars)  # and whoever gave it is killed
    await sweep(world).run_once()
    await world.tick(3)

    assert [paused["phase"], view["phase"]] == ["paused", "paused"]
    assert "Project's budget exhausted" in paused["status_reason"]["message"]
    assert (await world.event_codes(job)).count("job.budget_exhausted") == 1
    assert len(await world.attempts_of(job)) == 1


@pytest.mark.parametrize("hours", [-1, 1])
async def test_by_whatever_clock_a_budget_was_set_jobs_are_weighed_again_by_it_once(
    world: World, hours: int
) -> None:
    await give_budget(world, 5)
    job = (await world.submit())["id"]
    await world.tick(4)
    once = (await world.event_codes(job)).count("job.budget_exhausted")

    # The replica that wrote it is killed.
    await give_budget(world, 5, clock_offset=timedelta(hours=hours))
    for _ in range(4):
        await sweep(world).run_once()
        await world.tick(2, seconds=0)

    assert once == 1
    assert (await world.event_codes(job)).count("job.budget_exhausted") == 2
    assert (await world.job(job))["phase"] == "paused"


async def test_the_same_budget_given_again_counts_from_then_on(world: World) -> None:
    await give_budget(world, 40)
    job, nodes, number = await start_job(world, nodes=2)
    await train_on(world, nodes, number, minutes=92)
    await sweep(world).run_once()
    await stop_nodes(world, job, nodes, number)
    paused = await world.job(job)
    world.clock.advance(hours=24)

    await give_budget(world, 40)  # and whoever gave it is killed
    await sweep(world).run_once()
    booted = await boot(world, job)

    assert (paused["phase"], paused["status_reason"]["code"]) == ("paused", "budget_exhausted")
    assert len(booted) == 2
