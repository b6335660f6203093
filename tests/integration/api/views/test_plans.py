"""Plans before anything is paid for, as a resource, and simulated lives."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from rekindle.cli.jobs.simulate import strategies_table
from service.domain.cloud.fleet import Offering, Price
from service.domain.states import CapacityType
from service.pricing.fixed import FixedPrices
from tests.nodes.scripted_node import metrics, start_training
from tests.world import JOBS, World
from trainer.contract import NodePhase

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
SMALL = "Standard_NC24ads_A100_v4"
ANSWER = {"role": "assistant", "content": "because " * 120}


async def plan(world: World, **fields: Any) -> Any:  # noqa: ANN401 - JSON
    body = {"model": LLAMA, "training_file": await world.upload(), "infrastructure": {"nodes": 1}}
    response = await world.call("POST", f"{JOBS}?dry_run=true", json=body | fields)
    assert response.status_code == 200, response.text
    return response.json()


async def test_a_known_model_is_planned_before_it_is_staged(world: World) -> None:
    planned = await plan(world, training={"adapter": {"type": "lora"}})

    assert planned["model"] == LLAMA
    assert planned["plan"]["memory"]["parameters"] > 2 * 8_030_261_248
    (warning,) = (w for w in planned["plan"]["warnings"] if "not staged yet" in w)
    assert f"rekindle.stage --name {LLAMA}" in warning
    assert "Llama 3.1 Community License" in warning


async def test_an_encoder_is_planned_to_classify(world: World) -> None:
    bert = {"model": "google-bert/bert-base-uncased"}
    rows = [{"text": f"row {n}", "label": "good" if n % 2 else "bad"} for n in range(20)]
    file = await world.upload("\n".join(map(json.dumps, rows)).encode())

    planned = await plan(world, **bert, training_file=file, method={"type": "classification"})

    assert planned["plan"]["recipe"]["max_seq_len"] == 512


async def test_a_plan_learns_from_what_jobs_of_the_project_took(world: World) -> None:
    model = {"model": "rekindle/tiny-llama", "infrastructure": {"nodes": 2}}
    first = (await plan(world, **model))["plan"]
    _, nodes, number = await start_training(world)
    pace = 2 * first["seconds_per_step"]
    batch = tuple(replace(metrics(step), seconds=pace) for step in range(2, 21))
    await nodes[0].say(NodePhase.RUNNING, number, step=20, metrics=batch)

    second = (await plan(world, **model))["plan"]

    assert second["roofline_seconds"] == first["seconds_per_step"]
    assert 1.6 < second["seconds_per_step"] / first["seconds_per_step"] < 2.0


async def test_a_job_shows_its_checkpoint_interval_and_where_it_comes_from(world: World) -> None:
    planned = await world.submit()
    overridden = await world.submit(training={"checkpoint_seconds": 60})

    intervals = [
        (await world.job(job["id"]))["checkpoint_interval"] for job in (planned, overridden)
    ]

    assert intervals[0]["seconds"] == planned["plan"]["options"][0]["checkpoint_seconds"]
    assert [f["chosen_by"] for f in intervals] == ["planner", "user"]
    assert intervals[1] == {
        "seconds": 60.0,
        "chosen_by": "user",
        "evictions_per_hour": None,
        "notices_answered": None,
    }


@pytest.fixture
async def cloud_of_gpus(world: World) -> AsyncIterator[World]:
    """Yield a service whose machines have GPUs: one small size on Spot, and one on demand."""
    offering = Offering(region="eastus", vm_size=SMALL, capacity_type=CapacityType.SPOT)
    on_demand = replace(offering, capacity_type=CapacityType.ON_DEMAND)
    full = Decimal("3.67")
    table = {
        offering: Price(hourly=Decimal("0.68"), on_demand_hourly=full),
        on_demand: Price(hourly=full, on_demand_hourly=full),
    }
    defaults = replace(
        world.parts.plan_defaults,
        offerings=tuple(table),
        accelerator="cuda",
        processes_per_node=None,
        is_emulated=False,
    )
    async with world.beside(plan_defaults=defaults, prices=FixedPrices(table)) as replica:
        yield replica


async def asked_of_8b(world: World, **infrastructure: Any) -> Any:  # noqa: ANN401 - JSON
    """Answer to a dry run of a LoRA job of about 2 hours on one small machine."""
    rows = [{"messages": [{"role": "user", "content": "why " * 250}, ANSWER]} for _ in range(700)]
    file = await world.upload("\n".join(map(json.dumps, rows)).encode())
    body = {
        "model": LLAMA,
        "training_file": file,
        "hyperparameters": {"n_epochs": 40, "batch_size": 32},
        "training": {"adapter": {"type": "lora"}},
        "infrastructure": infrastructure,
    }
    response = await world.call("POST", f"{JOBS}?dry_run=true", json=body)
    return response.json()


async def test_a_job_with_an_hour_to_go_gets_as_many_nodes_as_it_takes(
    cloud_of_gpus: World,
) -> None:
    world = cloud_of_gpus
    hour = int((world.clock() + timedelta(hours=1)).timestamp())

    without_budget = await asked_of_8b(world)
    suggestions_plan = await asked_of_8b(world, deadline=hour)
    small_budget = await asked_of_8b(world, deadline=hour, budget={"amount": "0.50"})
    fixed_nodes = await asked_of_8b(world, deadline=hour, nodes=1)

    assert without_budget["plan"]["nodes"] == 1
    assert without_budget["plan"]["duration_p50"] > 3600
    best = suggestions_plan["plan"]["options"][0]
    assert best["nodes"] > 1
    assert best["eta_seconds"]["p90"] <= best["seconds_needed"] <= 3600
    assert best["meets_deadline"] >= 0.9
    assert "chosen by the deadline" in suggestions_plan["plan"]["why"]
    assert small_budget["error"]["code"] == "budget_too_small"
    assert fixed_nodes["error"]["code"] == "deadline_too_soon"
    assert "infrastructure.nodes" in fixed_nodes["error"]["message"]


PLANS = "/v1/fine_tuning/plans"


async def plan_job(world: World, **fields: Any) -> tuple[dict[str, Any], dict[str, Any]]:  # noqa: ANN401
    """Return a request, and the plan of it."""
    body = await world.job_request() | fields
    response = await world.call("POST", PLANS, json=body)
    assert response.status_code == 200, response.text
    plan: dict[str, Any] = response.json()
    return body, plan


async def test_a_plan_is_kept_and_a_job_is_created_as_planned(world: World) -> None:
    body, plan = await plan_job(world, infrastructure={"nodes": 2, "budget": {"amount": "90"}})
    fetched = await world.call("GET", f"{PLANS}/{plan['id']}")
    job = await world.call("POST", JOBS, json=body | {"plan": plan["id"], "metadata": {"a": "b"}})

    assert fetched.json() == plan
    assert plan["expires_at"] - plan["created_at"] == 86_400
    assert plan["chosen"]["fits_budget"]
    assert plan["chosen"]["memory"]["needed"] > 0
    assert job.status_code == 200, job.text
    assert job.json()["plan"]["options"][0]["cost_p50"] == plan["chosen"]["cost_p50"]


async def test_other_places_are_shown_by_cost_and_time(world: World) -> None:
    _, plan = await plan_job(world)
    costs = [float(option["cost_p50"]) for option in (plan["chosen"], *plan["next"])]

    assert costs == sorted(costs)
    assert len(plan["next"]) == min(3, len(plan["plan"]["options"]) - 1)
    for suggestion in plan["suggestions"]:
        member = {"cheaper": "cost_p50", "faster": "duration_p50"}[suggestion["aim"]]
        assert float(suggestion[member]) < float(plan["chosen"][member])


async def test_a_plan_expires(world: World) -> None:
    body, plan = await plan_job(world)
    world.clock.advance(hours=25)
    response = await world.call("POST", JOBS, json=body | {"plan": plan["id"]})

    assert (response.status_code, response.json()["error"]["param"]) == (400, "plan")
    assert "expired at" in response.json()["error"]["message"]


async def test_a_job_is_lived_many_times_without_being_changed(world: World) -> None:
    job = (await world.submit())["id"]
    before = await world.call("GET", f"{JOBS}/{job}")

    response = await world.call(
        "POST", f"{JOBS}/{job}/simulation", json={"deadline_hours": 3, "lives": 2}
    )

    simulation = response.json()
    assert response.status_code == 200, response.text
    assert [policy["name"] for policy in simulation["ways"]] == [
        "rekindle",
        "spot_only",
        "on_demand",
    ]
    assert simulation["ways"][0]["in_time_pct"] == 100
    after = await world.call("GET", f"{JOBS}/{job}")
    assert after.json()["status"] == before.json()["status"]
    assert strategies_table(simulation).row_count == 3


async def test_a_job_with_a_deadline_is_lived_with_it(world: World) -> None:
    until = int((world.clock() + timedelta(hours=5)).timestamp())
    job = (await world.submit(infrastructure={"deadline": until}))["id"]

    default_simulation = (
        await world.call("POST", f"{JOBS}/{job}/simulation", json={"lives": 1})
    ).json()
    options = {"lives": 1, "deadline_hours": 7}
    second = (await world.call("POST", f"{JOBS}/{job}/simulation", json=options)).json()

    assert [policy["name"] for policy in default_simulation["ways"]] == [
        "rekindle",
        "spot_only",
        "on_demand",
    ]
    assert default_simulation["deadline_hours"] == pytest.approx(5, abs=0.1)
    assert second["deadline_hours"] == 7
