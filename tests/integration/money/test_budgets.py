"""Budgets of jobs and projects: what they stop, what they keep aside, and who is told."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from service.api.app import make_app
from service.cloud.provider import CloudError
from service.db.money import budgets as caps
from service.db.money import ledger
from service.domain.cloud.fleet import Offering, Price, scale_set_name
from service.domain.money import budget
from service.domain.money.budget import Allowance, BudgetStanding
from service.operations.money import budgets
from service.pricing.fixed import FixedPrices
from service.pricing.source import PricesUnavailable
from service.reconciler.cloud.heartbeat_visibility import HeartbeatVisibility
from service.reconciler.jobs.budgets import ProjectBudgets
from service.reconciler.sweeps.price_watch import PriceWatch
from tests.integration.db.rows import add_attempt
from tests.integration.stored_jobs import put_files
from tests.nodes.scripted_node import ScriptedNode, boot, commit, committed, say_all, train
from tests.world import PRICE, SPOT, World, client, preparation
from trainer.contract import DirectiveKind, NodePhase

JOBS = "/v1/fine_tuning/jobs"


def with_budget(amount: str, on_exhausted: str = "pause", nodes: int = 2) -> dict[str, Any]:
    """Return a request's infrastructure with a budget."""
    return {"nodes": nodes, "budget": {"amount": amount, "on_exhausted": on_exhausted}}


async def start_job(world: World, **infrastructure: Any) -> tuple[str, list[ScriptedNode], int]:  # noqa: ANN401
    """Submit a job, and let it train one step."""
    job = await world.submit(infrastructure=infrastructure)
    nodes = await boot(world, job["id"])
    return job["id"], nodes, await train(world, nodes, step=1)


async def train_on(world: World, nodes: list[ScriptedNode], number: int, minutes: float) -> None:
    """So much time passes, and the nodes still train."""
    world.clock.advance(minutes=minutes)
    await say_all(nodes, NodePhase.RUNNING, number, step=1)
    await world.tick(2, seconds=1)


async def stop_nodes(world: World, job_id: str, nodes: list[ScriptedNode], number: int) -> None:
    """Let the nodes save and stop, and delete them."""
    checkpoint = committed(2, number, "stop")
    await put_files(world.store, job_id, checkpoint.path)
    await commit(world, job_id, checkpoint)
    await say_all(nodes, NodePhase.STOPPED, number, step=2)
    await world.tick(20)


async def test_a_job_whose_budget_is_used_up_saves_pauses_and_says_how_to_go_on(
    world: World,
) -> None:
    job, nodes, number = await start_job(world, **with_budget("40"))
    await train_on(world, nodes, number, minutes=92)
    directives = [(await node.hear()).kind for node in nodes]
    stopping = await world.job(job)
    await stop_nodes(world, job, nodes, number)

    paused = await world.job(job)
    response = await world.call("POST", f"{JOBS}/{job}/resume")

    assert directives == [DirectiveKind.CHECKPOINT_AND_STOP] * 2
    assert stopping["status_reason"]["code"] == "budget_exhausted"
    assert (paused["status"], paused["phase"]) == ("queued", "paused")
    assert f"rekindle set {job} --budget" in paused["status_reason"]["message"]
    assert Decimal(paused["cost"]["spent"]) < 40
    assert (await world.attempts_of(job))[0]["outcome"] == "over_budget"
    assert await world.cloud.list_owned() == []
    assert response.status_code == 409

    fields = {"infrastructure": {"budget": {"amount": "400"}}}
    raised = await world.call("PATCH", f"{JOBS}/{job}", json=fields)
    assert raised.status_code == 200, raised.text
    assert raised.json()["cost"]["budget"] == "400.0000"
    assert len(await boot(world, job)) == 2


async def test_a_job_may_be_cancelled_rather_than_paused_when_money_runs_out(world: World) -> None:
    job, nodes, number = await start_job(world, **with_budget("40", "cancel"))
    await train_on(world, nodes, number, minutes=92)
    directive = await nodes[0].hear()
    await stop_nodes(world, job, nodes, number)

    job_view = await world.job(job)

    assert directive.kind is DirectiveKind.CHECKPOINT_AND_STOP
    assert job_view["status"] == "cancelled"
    assert (
        "as budget.on_exhausted is cancel. Budget exhausted" in job_view["status_reason"]["message"]
    )
    assert "raise it" not in job_view["status_reason"]["message"]


async def test_each_threshold_of_a_budget_is_one_event(world: World) -> None:
    job, nodes, number = await start_job(world, **with_budget("100"))
    for minutes in (170, 10, 105, 20):
        await train_on(world, nodes, number, minutes=minutes)

    budget_codes = [c for c in await world.event_codes(job) if c.startswith("job.budget")]

    assert budget_codes == ["job.budget_threshold", "job.budget_threshold", "job.budget_exhausted"]


async def test_nodes_that_hear_nothing_stop_while_the_budget_still_covers_it(world: World) -> None:
    _, nodes, number = await start_job(world, **with_budget("100"))
    await train_on(world, nodes, number, minutes=30)
    response = await nodes[0].say(NodePhase.RUNNING, number, step=1)
    looked_at = world.clock()
    world.clock.advance(minutes=10)

    much_later = await nodes[0].say(NodePhase.RUNNING, number, step=1)

    allowed = (looked_at + world.parts.outage).timestamp()
    assert response.json()["stop_by"] <= allowed
    assert much_later.json()["stop_by"] <= allowed  # nobody has looked at the money since


async def test_no_machines_are_asked_for_that_the_budget_does_not_cover_to_their_end(
    world: World,
) -> None:
    job, nodes, number = await start_job(world, **with_budget("40"))
    await train_on(world, nodes, number, minutes=84)
    world.cloud.evict(scale_set_name(nodes[0].attempt_id), "0")
    await world.tick(1)
    await say_all(nodes, NodePhase.STOPPED, number, step=1)

    await world.tick(25)

    view = await world.job(job)
    assert len(await world.attempts_of(job)) == 1
    assert view["phase"] == "paused"
    assert "must be left to start machines" in view["status_reason"]["message"]


async def test_a_job_whose_machines_azure_does_not_list_waits_until_azure_answers(
    world: World,
) -> None:
    pace = replace(world.pace, provisioning=timedelta(minutes=15))  # else money is up earlier
    world.attempts = replace(world.attempts, pace=pace)
    job = await world.submit(infrastructure=with_budget("60"))
    world.cloud.fail_next = [CloudError("the secret has expired")] * 10_000
    await world.tick(80, seconds=180)
    pending_job = await world.job(job["id"])
    world.cloud.fail_next = []
    await world.tick(20, seconds=180)

    assert pending_job["status"] == "queued"
    assert "reserved until other machines" in pending_job["status_reason"]["message"]
    codes = await world.event_codes(job["id"])
    assert not {"job.budget_exhausted", "job.budget_passed"} & set(codes)
    assert [a["state"] for a in await world.attempts_of(job["id"])][-1] == "starting"


async def test_the_jobs_of_a_project_share_its_budget(world: World) -> None:
    async with world.engine.begin() as conn:
        await budgets.set_project(conn, "tests", Decimal(30), world.clock(), None)
    first, nodes, number = await start_job(world, nodes=2)
    second = await world.submit()
    await world.tick(3)
    pending_job = await world.job(second["id"])

    await train_on(world, nodes, number, minutes=56)
    sweep = ProjectBudgets(engine=world.engine, allowance=world.attempts.allowance, now=world.clock)
    stopped = await sweep.run_once()
    await world.tick(1, seconds=1)

    assert "reserved until other machines" in pending_job["status_reason"]["message"]
    assert stopped == [first]
    assert (await nodes[0].hear()).kind is DirectiveKind.CHECKPOINT_AND_STOP
    assert "job.budget_threshold" in await world.event_codes(first)


async def test_the_bill_says_what_is_left_and_what_a_million_tokens_cost(world: World) -> None:
    job, nodes, number = await start_job(world, **with_budget("100"))
    await train_on(world, nodes, number, minutes=30)

    bill = (await world.job(job))["cost"]

    spent = Decimal(bill["spent"])
    assert Decimal(bill["budget_remaining"]) == 100 - spent
    assert Decimal(bill["forecast_low"]) <= Decimal(bill["forecast_total"])
    assert Decimal(bill["forecast_total"]) <= Decimal(bill["forecast_high"])
    assert Decimal(bill["per_million_tokens"]) > PRICE.hourly


async def test_a_project_sees_what_its_jobs_cost_by_hour_and_what_that_saved(world: World) -> None:
    job, nodes, number = await start_job(world, nodes=2)
    await train_on(world, nodes, number, minutes=100)
    spent = Decimal((await world.job(job))["cost"]["spent"])

    page = await world.call("GET", "/v1/organization/costs?bucket_width=1h")
    other_key = await world.other_key()
    other_response = await world.call(
        "GET", "/v1/organization/costs", headers={"authorization": f"Bearer {other_key}"}
    )

    report = page.json()
    amounts = [r["amount"]["value"] for b in report["data"] for r in b["results"]]
    assert abs(Decimal(report["total"]) - spent) < Decimal("0.001")
    assert abs(Decimal(str(sum(amounts))) - spent) < Decimal("0.001")
    assert len(amounts) == 2
    assert report["saved_percent"] == 74.2
    assert other_response.json()["total"] == "0.0000"


async def test_a_price_that_moves_is_billed_from_then_on(world: World) -> None:
    job, nodes, number = await start_job(world, nodes=2)
    await train_on(world, nodes, number, minutes=60)
    before = Decimal((await world.job(job))["cost"]["spent"])
    higher_price = Price(hourly=PRICE.hourly * 2, on_demand_hourly=PRICE.on_demand_hourly)
    watch = PriceWatch(
        engine=world.engine, prices=FixedPrices({SPOT: higher_price}), now=world.clock
    )

    counts = (await watch.run_once(), await watch.run_once())
    world.clock.advance(hours=1)
    after = Decimal((await world.job(job))["cost"]["spent"])

    assert counts == (1, 0)
    assert abs(after - before - 2 * higher_price.hourly) < Decimal("0.001")


class PartlyAway(FixedPrices):
    """Of one region nothing can be read."""

    async def prices(self, offerings: list[Offering]) -> dict[Offering, Price]:
        if any(offering.region == "aaa" for offering in offerings):
            raise PricesUnavailable("429")
        return await super().prices(offerings)


async def test_a_price_that_cannot_be_read_holds_up_no_other_one(world: World) -> None:
    job, _, _ = await start_job(world, nodes=2)
    async with world.engine.begin() as conn:
        values = {"id": "att-x", "job_id": job, "number": 2, "region": "aaa"}
        await add_attempt(conn, world.clock(), **values, state="terminating", outcome="evicted")
    higher_price = Price(hourly=PRICE.hourly * 2, on_demand_hourly=PRICE.on_demand_hourly)
    watch = PriceWatch(
        engine=world.engine, prices=PartlyAway({SPOT: higher_price}), now=world.clock
    )

    assert await watch.run_once() == 1


@pytest.mark.parametrize(
    ("state", "known_machines", "dollars"),
    [("terminating", 2, 0), ("running", 2, 0), ("provisioning", 0, 240)],
)
async def test_only_what_was_ordered_and_may_still_come_counts_as_unseen(
    world: World, state: str, known_machines: int, dollars: int
) -> None:
    now = world.clock()
    job = str((await world.submit())["id"])
    long_ago, minutes = now - timedelta(hours=10), timedelta(minutes=5)
    async with world.engine.begin() as conn:
        values: dict[str, Any] = {"refills": 0, "refilled_at": now - minutes}
        if state == "terminating":
            values |= {"refills": 1, "outcome": "evicted"}
        facts = {"id": "att-x", "job_id": job, "instance_count": 3, "state": state, "seen_at": now}
        await add_attempt(conn, long_ago, **facts, **values)
        vms = [f"vm-{number}" for number in range(known_machines)]
        price = Price(hourly=Decimal(8), on_demand_hourly=Decimal(32))
        machines = ledger.ExistingMachines(
            job_id=job, attempt_id="att-x", vm_ids=vms, price=price, since=long_ago
        )
        await ledger.meter(conn, [machines], now)
        (hold,) = await caps.holds_of_job(conn, job)

    assert hold.unmetered(now) == dollars


async def test_machines_that_are_seen_once_their_price_has_moved_are_billed_at_the_new_one(
    world: World,
) -> None:
    job = (await world.submit())["id"]
    await world.tick(3)  # Azure has taken the order, and no machine was seen yet
    world.clock.advance(minutes=3)
    higher_price = Price(hourly=PRICE.hourly * 2, on_demand_hourly=PRICE.on_demand_hourly * 2)
    watch = PriceWatch(
        engine=world.engine, prices=FixedPrices({SPOT: higher_price}), now=world.clock
    )

    claims = await world.attempts.claim(10)  # and so the price of now is read
    async with world.engine.connect() as conn:
        before = await ledger.of_job(conn, job)
    counts = [await watch.run_once()]
    for claim in claims:
        await claim()
    counts.append(await watch.run_once())

    async with world.engine.connect() as conn:
        ledger_rows = await ledger.of_job(conn, job)
    assert (before, counts) == ([], [1, 0])
    assert [(r.hourly, r.on_demand_hourly) for r in ledger_rows] == [
        (higher_price.hourly, higher_price.on_demand_hourly)
    ] * 2


# As on the local stack, which deletes within a minute and restarts its parts at once.
LOCAL = Allowance(
    delete=timedelta(minutes=1), outage=timedelta(minutes=1), detection=timedelta(seconds=8)
)


@pytest.fixture
async def local(world: World) -> AsyncIterator[World]:
    """Yield a world whose machines start in 15 seconds and are deleted within a minute."""
    defaults = replace(world.parts.plan_defaults, recovery_seconds=15.0)
    world.parts = replace(world.parts, plan_defaults=defaults, allowance=LOCAL)
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

    view = await local.job(job)
    assert view["status"] == "succeeded"
    assert Decimal("0.1") < Decimal(view["cost"]["spent"]) < 1
    assert "job.budget_exhausted" not in await local.event_codes(job)


@pytest.mark.parametrize(
    ("speaks", "restarts", "seconds"),
    [(True, True, 45), (True, False, 90), (False, True, 90), (False, False, 45)],  # all pairs
)
async def test_no_rhythm_of_rounds_keeps_machines_that_do_not_stop_past_their_budget(
    world: World, speaks: bool, restarts: bool, seconds: int
) -> None:
    job, nodes, number = await start_job(world, **with_budget("40"))
    await train_on(world, nodes, number, minutes=92)
    for _ in range(600 // seconds):
        world.clock.advance(seconds=seconds)
        if restarts:
            world.attempts = replace(world.attempts, visibility=HeartbeatVisibility())
        for node in nodes if speaks and await world.cloud.list_owned() else []:
            await node.say(NodePhase.RUNNING, number, step=1)
        await world.attempts.run_once()
        await world.jobs.run_once()

    (attempt,) = await world.attempts_of(job)
    assert (attempt["state"], attempt["outcome"]) == ("ended", "over_budget")
    assert Decimal((await world.job(job))["cost"]["spent"]) < 40


@pytest.mark.parametrize("reached", [50, 90, budget.CAP_PASSED])
async def test_a_budget_that_did_not_hold_is_the_operators_matter_and_a_threshold_is_not(
    world: World, caplog: pytest.LogCaptureFixture, reached: int
) -> None:
    job = await world.submit()
    standing = BudgetStanding(cap=Decimal(10), metered=Decimal(11))
    async with world.engine.begin() as conn:
        await budgets.record_threshold(conn, job["id"], standing, reached, world.clock())

    records = [vars(r) for r in caplog.records if r.getMessage() == "job.budget_passed"]
    passed = [("ERROR", job["id"])] if reached == budget.CAP_PASSED else []
    assert [(line["levelname"], line["job"]) for line in records] == passed
