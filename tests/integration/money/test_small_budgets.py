"""Budgets of a dollar, and budgets of jobs whose machines do not stop when they are told to."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from service.api.app import make_app
from service.db.money import budgets as caps
from service.domain.money.budget import Allowance
from service.reconciler.cloud.heartbeat_visibility import HeartbeatVisibility
from tests.integration.money.test_budgets import start_job, train_on, with_budget
from tests.integration.stored_jobs import put_files
from tests.nodes.scripted_node import boot, commit, committed, train
from tests.world import World, client, preparation
from trainer.contract import NodePhase

# As on the local stack, which deletes within a minute and restarts its parts at once.
LOCAL = Allowance(
    delete=timedelta(minutes=1), outage=timedelta(minutes=1), detection=timedelta(seconds=8)
)


@pytest.fixture
async def local(world: World) -> AsyncIterator[World]:
    """Yield a world whose machines start in 15 seconds and are deleted within a minute."""
    quick = replace(world.parts.plan_defaults, recovery_seconds=15.0)
    world.parts = replace(world.parts, plan_defaults=quick, allowance=LOCAL)
    world.attempts = replace(world.attempts, allowance=LOCAL)
    prepared = preparation(world.parts)
    world.jobs = replace(world.jobs, preparation=prepared, allowance=LOCAL)
    async with client(make_app(world.parts)) as http:
        world.http = http
        yield world


async def test_a_job_of_twenty_cents_runs_on_a_budget_of_a_dollar(local: World) -> None:
    job = (await local.submit(infrastructure=with_budget("1", nodes=1)))["id"]
    nodes = await boot(local, job)
    number = await train(local, nodes, step=1)
    await nodes[0].say(NodePhase.FINISHED, number, step=10)
    result = committed(10, number, "final")
    await put_files(local.store, job, result.path)
    await commit(local, job, result)
    await local.tick(8)

    shown = await local.job(job)
    assert shown["status"] == "succeeded"
    assert Decimal("0.1") < Decimal(shown["cost"]["spent"]) < 1
    assert "job.budget_exhausted" not in await local.event_codes(job)


async def test_an_attempt_reserves_the_time_that_its_own_job_needs_to_save(world: World) -> None:
    job, _, _ = await start_job(world, nodes=2)
    async with world.engine.connect() as conn:
        (hold,) = await caps.holds_of_job(conn, job)
        found = await caps.caps(conn, job)

    assert hold.save_seconds == found.save_seconds
    assert 30 < (hold.save_seconds or 0) < 60


@pytest.mark.parametrize(
    ("speaks", "restarts", "seconds"),
    [(True, True, 45), (True, False, 90), (False, True, 90), (False, False, 45)],  # all pairs
)
async def test_no_rhythm_of_rounds_keeps_machines_that_do_not_stop_past_their_budget(
    world: World, speaks: bool, restarts: bool, seconds: int
) -> None:
    job, nodes, number = await start_job(world, **with_budget("40"))
    await train_on(world, nodes, number, minutes=92)
    for _ in range(1200 // seconds):
        world.clock.advance(seconds=seconds)
        if restarts:
            world.attempts = replace(world.attempts, watch=HeartbeatVisibility())
        for node in nodes if speaks and await world.cloud.list_owned() else []:
            await node.say(NodePhase.RUNNING, number, step=1)
        await world.attempts.run_once()
        await world.jobs.run_once()

    (attempt,) = await world.attempts_of(job)
    assert (attempt["state"], attempt["outcome"]) == ("ended", "over_budget")
    assert Decimal((await world.job(job))["cost"]["spent"]) < 40
