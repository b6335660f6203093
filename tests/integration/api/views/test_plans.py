"""Plans before anything is paid for: of models that are not there yet, and from what jobs took."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from service.api.app import make_app
from service.domain.cloud.fleet import Offering, Price
from service.domain.states import CapacityType
from service.pricing.fixed import FixedPrices
from tests.nodes.scripted_node import metrics, start_training
from tests.world import World, client
from trainer.contract import NodePhase

JOBS = "/v1/fine_tuning/jobs"
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
SMALL = "Standard_NC24ads_A100_v4"
ANSWER = {"role": "assistant", "content": "because " * 120}


async def plan(world: World, **more: Any) -> Any:  # noqa: ANN401 - JSON
    body = {"model": LLAMA, "training_file": await world.upload(), "infrastructure": {"nodes": 1}}
    answer = await world.call("POST", f"{JOBS}?dry_run=true", json=body | more)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_model_that_many_know_is_planned_before_it_is_staged_and_says_so(
    world: World,
) -> None:
    told = await plan(world, training={"adapter": {"type": "lora"}})

    assert told["model"] == LLAMA
    assert told["plan"]["memory"]["parameters"] > 2 * 8_030_261_248
    (warning,) = (w for w in told["plan"]["warnings"] if "not staged yet" in w)
    assert f"rekindle.stage --name {LLAMA}" in warning
    assert "Llama 3.1 Community License" in warning


async def test_an_encoder_is_planned_to_classify(world: World) -> None:
    bert = {"model": "google-bert/bert-base-uncased"}
    rows = [{"text": f"row {n}", "label": "good" if n % 2 else "bad"} for n in range(20)]
    file = await world.upload("\n".join(map(json.dumps, rows)).encode())

    told = await plan(world, **bert, training_file=file, method={"type": "classification"})

    assert told["plan"]["recipe"]["max_seq_len"] == 512


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
    asked = await world.submit(training={"checkpoint_seconds": 60})

    found = [(await world.job(job["id"]))["checkpoint_interval"] for job in (planned, asked)]

    assert found[0]["seconds"] == planned["plan"]["options"][0]["checkpoint_seconds"]
    assert [f["chosen_by"] for f in found] == ["planner", "user"]
    assert found[1] == {
        "seconds": 60.0,
        "chosen_by": "user",
        "evictions_per_hour": None,
        "notices_answered": None,
    }


@pytest.fixture
async def cloud_of_gpus(world: World) -> AsyncIterator[World]:
    """Yield a service whose machines have GPUs: one small size on Spot, and one on demand."""
    small = Offering(region="eastus", vm_size=SMALL, capacity_type=CapacityType.SPOT)
    paid = replace(small, capacity_type=CapacityType.ON_DEMAND)
    full = Decimal("3.67")
    table = {
        small: Price(hourly=Decimal("0.68"), on_demand_hourly=full),
        paid: Price(hourly=full, on_demand_hourly=full),
    }
    defaults = replace(
        world.parts.plan_defaults,
        offerings=tuple(table),
        accelerator="cuda",
        processes_per_node=None,
        is_emulated=False,
    )
    parts = replace(world.parts, plan_defaults=defaults, prices=FixedPrices(table))
    async with client(make_app(parts)) as http:
        yield replace(world, parts=parts, http=http)


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
    answer = await world.call("POST", f"{JOBS}?dry_run=true", json=body)
    return answer.json()


async def test_an_8b_lora_job_with_an_hour_to_go_is_planned_on_as_many_nodes_as_that_takes(
    cloud_of_gpus: World,
) -> None:
    world = cloud_of_gpus
    hour = int((world.clock() + timedelta(hours=1)).timestamp())

    free = await asked_of_8b(world)
    told = await asked_of_8b(world, deadline=hour)
    small = await asked_of_8b(world, deadline=hour, budget={"amount": "0.50"})
    fixed = await asked_of_8b(world, deadline=hour, nodes=1)

    assert free["plan"]["nodes"] == 1
    assert free["plan"]["duration_p50"] > 3600
    best = told["plan"]["options"][0]
    assert best["nodes"] > 1
    assert best["eta_seconds"]["p90"] <= 3600
    assert best["meets_deadline"] >= 0.9
    assert "chosen by the deadline" in told["plan"]["why"]
    assert small["error"]["code"] == "budget_too_small"
    assert fixed["error"]["code"] == "deadline_too_soon"
    assert "infrastructure.nodes" in fixed["error"]["message"]
