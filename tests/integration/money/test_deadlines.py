"""Deadlines: refused when nothing can meet them, watched while a job trains, kept on demand."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from service.db.attempts import machine_history
from service.db.spot import market
from service.domain.lifecycle.constraints import RETURNS_TO_SPOT
from service.domain.spot.capacity_traces import SpotPool
from service.domain.spot.market import PlacementScore
from tests.integration.money.test_budgets import stop_nodes
from tests.integration.queue.test_admission import admissions, run_queue, set_region_quota
from tests.nodes.scripted_node import ScriptedNode, boot, evicted, metrics, say_all, train
from tests.world import BOTH, ON_DEMAND, SPOT, World
from trainer.contract import DirectiveKind, NodePhase

JOBS = "/v1/fine_tuning/jobs"
OFFERINGS = BOTH


def until(world: World, **offset: float) -> int:
    """Unix seconds so long from now."""
    return int((world.clock() + timedelta(**offset)).timestamp())


async def request_job(world: World, **infrastructure: Any) -> dict[str, Any]:  # noqa: ANN401
    """Submit a job with these members, and return the answer."""
    body: dict[str, Any] = {"model": "rekindle/tiny-llama", "training_file": await world.upload()}
    body |= {"infrastructure": {"nodes": 2, **infrastructure}}
    body |= {"training": {"checkpoint_seconds": 3600}}  # an eviction loses half an hour
    response = await world.call("POST", JOBS, json=body)
    return {**response.json(), "http": response.status_code}


async def run_late(
    world: World,
    **fields: Any,  # noqa: ANN401 - JSON
) -> tuple[dict[str, Any], list[ScriptedNode], int]:
    """Return a job on Spot that has done one step when 30 minutes of its 4 hours are left."""
    job = await request_job(world, deadline=until(world, hours=4), **fields)
    nodes = await boot(world, job["id"])
    number = await train(world, nodes, step=1)
    world.clock.advance(hours=3, minutes=30)
    await say_all(nodes, NodePhase.RUNNING, number, step=1)
    return job, nodes, number


async def test_a_deadline_that_even_on_demand_misses_is_refused_with_one_that_would_do(
    world: World,
) -> None:
    response = await request_job(world, deadline=until(world, minutes=5))
    accepted = await request_job(world, deadline=until(world, minutes=5), on_deadline_risk="notify")

    assert response["http"] == 400
    assert response["error"]["code"] == "deadline_too_soon"
    assert "(2026-11-20 12:20 UTC) or later" in response["error"]["message"]
    assert accepted["http"] == 200


@pytest.mark.parametrize(("less", "fits"), [("0", True), ("0.01", False)])
async def test_an_option_fits_the_budget_that_it_says_it_needs_and_no_smaller_one(
    world: World, less: str, fits: bool
) -> None:
    body: dict[str, Any] = {"model": "rekindle/tiny-llama", "training_file": await world.upload()}
    body |= {"infrastructure": {"nodes": 2, "budget": {"amount": "50"}}}
    plenty = (await world.call("POST", f"{JOBS}?dry_run=true", json=body)).json()["plan"]
    needed = Decimal(plenty["options"][0]["budget_needed"])
    body["infrastructure"]["budget"] = {"amount": str(needed - Decimal(less))}
    tight = (await world.call("POST", f"{JOBS}?dry_run=true", json=body)).json()["plan"]

    assert needed > Decimal(plenty["options"][0]["cost_p90"])  # to save the job is paid for too
    alike = [option for option in tight["options"] if option["budget_needed"] == str(needed)]
    assert [option["fits_budget"] for option in alike] == [fits]


async def test_a_job_that_spot_would_make_late_goes_on_on_demand(world: World) -> None:
    job, nodes, number = await run_late(world)
    await world.tick(2, seconds=1)
    directive = await nodes[0].hear()
    await stop_nodes(world, job["id"], nodes, number)

    attempts = await world.attempts_of(job["id"])

    assert directive.kind is DirectiveKind.CHECKPOINT_AND_STOP
    assert [a["capacity"] for a in attempts] == ["spot", "on_demand"]
    assert "job.deadline_at_risk" in await world.event_codes(job["id"])


@pytest.mark.parametrize("paused", [False, True])
async def test_a_passed_deadline_is_one_event(world: World, *, paused: bool) -> None:
    job = await request_job(world, deadline=until(world, hours=4), on_deadline_risk="notify")
    path = f"{JOBS}/{job['id']}"
    if paused:
        await world.call("POST", f"{path}/pause")
    await world.tick(2)
    world.clock.advance(hours=5)
    await world.tick(6, seconds=31)
    once = (await world.event_codes(job["id"])).count("job.deadline_passed")
    (message,) = (e["message"] for e in await world.events(job["id"], "job.deadline_passed"))
    await world.call("PATCH", path, json={"infrastructure": {"deadline": until(world, hours=4)}})
    world.clock.advance(hours=5)
    await world.tick(6, seconds=31)

    assert once == 1
    assert "goes on" not in message, "a paused job does not"
    assert message.endswith("cancel it, or set another deadline.")
    assert (await world.event_codes(job["id"])).count("job.deadline_passed") == 2


async def test_with_notify_a_job_that_may_be_late_stays_on_spot_also_after_an_eviction(
    world: World,
) -> None:
    job, _, _ = await run_late(world, on_deadline_risk="notify")
    await world.tick(3, seconds=31)
    assert [a["state"] for a in await world.attempts_of(job["id"])] == ["running"]
    await evicted(world, job["id"])
    world.clock.advance(seconds=61)
    await world.tick(8)

    attempts = await world.attempts_of(job["id"])
    assert [a["capacity"] for a in attempts] == ["spot", "spot"]
    assert (await world.event_codes(job["id"])).count("job.deadline_at_risk") == 1
    async with world.engine.connect() as conn:
        history = await machine_history.holds_by_offering(conn, [SPOT], world.clock())
    assert history[SPOT].holds.ends == (0, 0, 1, 0)
    assert sum(history[SPOT].holds.hours) == pytest.approx(3.5, abs=0.1)
    assert 60 < (history[SPOT].evicted_s or 0) < 600


async def test_a_job_that_will_be_late_has_its_event_before_it_has_machines(world: World) -> None:
    world.cloud.sold_out.add(SPOT)
    job = await request_job(world, deadline=until(world, minutes=5), on_deadline_risk="notify")
    await world.tick(6)

    view = await world.job(job["id"])
    assert {a["capacity"] for a in await world.attempts_of(job["id"])} == {"spot"}
    assert (await world.event_codes(job["id"])).count("job.deadline_at_risk") == 1
    assert "refused once" in view["status_reason"]["message"]
    assert view["status_reason"]["next_try_at"] is not None


async def test_a_job_to_be_cancelled_when_late_is_cancelled_in_the_queue_too(world: World) -> None:
    queue = admissions(world)
    await set_region_quota(world, queue, machines=2, other_machines=2)
    job = await request_job(world, deadline=until(world, hours=2), on_deadline_risk="cancel")
    await run_queue(world, queue, times=4)
    pending_job = await world.job(job["id"])
    world.clock.advance(hours=1, minutes=51)
    await run_queue(world, queue, times=4)

    assert pending_job["queue"]["code"] == "region_cores"
    assert (await world.job(job["id"]))["status"] == "cancelled"
    assert await world.attempts_of(job["id"]) == []


async def test_a_change_of_terms_is_an_event_and_null_lifts_a_term(world: World) -> None:
    job = await request_job(world, budget={"amount": "100"}, deadline=until(world, hours=9))
    change = {"infrastructure": {"budget": None}, "metadata": {"team": "red"}}
    response = await world.call("PATCH", f"{JOBS}/{job['id']}", json=change)

    changed_job = response.json()
    assert changed_job["infrastructure"]["budget"] is None
    assert changed_job["infrastructure"]["deadline"] == until(world, hours=9)
    assert changed_job["metadata"] == {"team": "red"}
    assert "job.changed" in await world.event_codes(job["id"])


async def test_a_job_stays_on_spot_where_its_budget_does_not_cover_on_demand(world: World) -> None:
    job, _, _ = await run_late(world, budget={"amount": "100"})
    await world.tick(3, seconds=31)

    messages = [e["message"] for e in await world.events(job["id"], "job.deadline_at_risk")]
    assert len(messages) == 1
    assert "would meet it, but: budget exhausted: " in messages[0]
    assert "The job stays on Spot" in messages[0]
    assert [a["state"] for a in await world.attempts_of(job["id"])] == ["running"]


async def test_a_job_on_demand_goes_back_to_spot_once_azure_has_said_twice_that_there_is_some(
    world: World,
) -> None:
    job = await request_job(world, deadline=until(world, minutes=40))  # too little time to try Spot
    nodes = await boot(world, job["id"])
    number = await train(world, nodes, step=1)
    measurement = replace(metrics(1), seconds=1800.0)
    await nodes[0].say(NodePhase.RUNNING, number, step=1, metrics=(measurement,))
    more_time = {"infrastructure": {"deadline": until(world, hours=90)}}
    await world.call("PATCH", f"{JOBS}/{job['id']}", json=more_time)

    capacity = []
    for _ in range(2):
        async with world.engine.begin() as conn:
            likely = {SpotPool(SPOT.region, SPOT.vm_size): PlacementScore.HIGH}
            await market.save_scores(conn, likely, 2, world.clock())
        await world.tick(2, seconds=31)
        capacity.append("job.back_to_spot" in await world.event_codes(job["id"]))
        world.clock.advance(minutes=12)
        await say_all(nodes, NodePhase.RUNNING, number, step=1)
    directive = await nodes[0].hear()
    await stop_nodes(world, job["id"], nodes, number)

    attempts = await world.attempts_of(job["id"])
    assert capacity == [False, True]
    assert directive.kind is DirectiveKind.CHECKPOINT_AND_STOP
    assert [a["capacity"] for a in attempts] == ["on_demand", "spot"]
    assert attempts[0]["reason"].startswith(RETURNS_TO_SPOT)
    assert (await world.event_codes(job["id"])).count("job.back_to_spot") == 1
    await train(world, await boot(world, job["id"]), step=3)
    async with world.engine.connect() as conn:
        history = await machine_history.capacity_history(conn, BOTH, 2, world.clock())
    assert history.returned == (1, 1)


async def test_what_spot_answered_is_known_to_the_next_choice(world: World) -> None:
    first = await request_job(world, deadline=until(world, hours=48))
    nodes = await boot(world, first["id"])
    await train(world, nodes, step=1)
    world.cloud.sold_out.add(SPOT)
    refused_at = world.clock()
    await request_job(world, deadline=until(world, hours=48))
    await world.tick(3)
    world.clock.advance(hours=2)

    async with world.engine.connect() as conn:
        history = await machine_history.capacity_history(conn, BOTH, 2, world.clock())

    assert sum(history.outages.hours) == pytest.approx(2.0, abs=0.05)
    assert history.is_outage_start_observed
    assert abs(history.last_unavailable[SPOT] - refused_at) < timedelta(minutes=1)


async def test_spot_is_left_once_where_on_demand_turns_out_to_be_sold_out(world: World) -> None:
    world.cloud.sold_out.add(ON_DEMAND)
    job, nodes, number = await run_late(world)
    await world.tick(2, seconds=1)
    await stop_nodes(world, job["id"], nodes, number)
    new_nodes = await boot(world, job["id"])
    number = await train(world, new_nodes, step=3)
    world.clock.advance(minutes=2)  # on demand may be asked for again
    await say_all(new_nodes, NodePhase.RUNNING, number, step=3)
    await world.tick(3, seconds=31)

    attempts = await world.attempts_of(job["id"])
    assert [a["capacity"] for a in attempts] == ["spot", "on_demand", "spot"]
    assert [a["outcome"] for a in attempts][1:] == ["no_capacity", None]
    assert attempts[-1]["state"] == "running"
    assert (await world.event_codes(job["id"])).count("job.deadline_at_risk") == 1
