"""Plans before anything is paid for: of models that are not there yet, and from what jobs took."""

import json
from dataclasses import replace
from typing import Any

from tests.scripted_node import boot, metrics, train
from tests.world import World
from trainer.contract import NodePhase

JOBS = "/v1/fine_tuning/jobs"
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


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
    (warning,) = (w for w in told["plan"]["warnings"] if "not staged here yet" in w)
    assert f"rekindle.stage --name {LLAMA}" in warning
    assert "Llama 3.1 Community License" in warning


async def test_an_encoder_is_planned_to_classify_and_for_nothing_else(world: World) -> None:
    bert = {"model": "google-bert/bert-base-uncased"}
    rows = [{"text": f"row {n}", "label": "good" if n % 2 else "bad"} for n in range(20)]
    file = await world.upload("\n".join(map(json.dumps, rows)).encode())

    told = await plan(world, **bert, training_file=file, method={"type": "classification"})
    body = bert | {"training_file": await world.upload(), "infrastructure": {"nodes": 1}}
    refused = await world.call("POST", f"{JOBS}?dry_run=true", json=body)

    assert told["plan"]["recipe"]["max_seq_len"] == 512
    assert refused.json()["error"]["param"] == "method.type"
    assert "writes no text" in refused.json()["error"]["message"]


async def test_a_job_still_needs_its_model_to_be_staged(world: World) -> None:
    body = {"model": LLAMA, "training_file": await world.upload()}

    refused = await world.call("POST", JOBS, json=body)
    unknown = await world.call("POST", f"{JOBS}?dry_run=true", json=body | {"model": "my/own"})

    assert [a.json()["error"]["code"] for a in (refused, unknown)] == ["unsupported_model"] * 2


async def test_a_plan_learns_from_what_jobs_of_the_project_took(world: World) -> None:
    model = {"model": "rekindle/tiny-llama", "infrastructure": {"nodes": 2}}
    first = (await plan(world, **model))["plan"]
    job = await world.submit()
    nodes = await boot(world, job["id"])
    number = await train(world, nodes, step=1)
    pace = 2 * first["seconds_per_step"]
    batch = tuple(replace(metrics(step), seconds=pace) for step in range(2, 21))
    await nodes[0].say(NodePhase.RUNNING, number, step=20, metrics=batch)

    second = (await plan(world, **model))["plan"]

    assert second["roofline_seconds"] == first["seconds_per_step"]
    assert 1.6 < second["seconds_per_step"] / first["seconds_per_step"] < 2.0


async def test_a_job_shows_how_often_it_saves_and_who_chose_that(world: World) -> None:
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
        "since": None,
    }
