"""Jobs that learn from preferences, rankings or labels: file, method, what nodes get."""

import csv
import io
import json
from dataclasses import replace
from typing import Any

import pytest

from tests.datasets import PAIRS, REWARD, labelled, prompts, rankings
from tests.nodes.scripted_node import boot, commit, committed, metrics, say_all, train
from tests.world import DATASET, MODEL, World
from trainer.contract import RUN_SPEC, Curriculum, Dpo, Mix, NodePhase, Ranked, RunSpec
from trainer.engine.deepspeed_engine import build_config

JOBS = "/v1/fine_tuning/jobs"
DPO = {"type": "dpo", "dpo": {"hyperparameters": {"n_epochs": 2}, "label_smoothing": 0.1}}

ORPO = {"type": "orpo", "orpo": {"hyperparameters": {"n_epochs": 2, "beta": 0.25}}}


async def create_job(world: World, file: str, **fields: object) -> dict[str, Any]:
    """Return the answer, also when the request is refused."""
    body = {"model": MODEL, "training_file": file, **fields}
    response: dict[str, Any] = (await world.call("POST", JOBS, json=body)).json()
    return response


async def read_run_spec(world: World, job_id: str) -> RunSpec:
    """Return the run spec that the job's nodes receive."""
    await boot(world, job_id)
    data, _ = await world.store.read(job_id, RUN_SPEC)
    return RunSpec.from_json(data)


async def test_a_file_says_what_its_rows_are(world: World) -> None:
    files = []
    for data in (DATASET, PAIRS, prompts()):
        world.clock.advance(seconds=1)
        files.append(await world.upload(data))

    documents = [(await world.call("GET", f"/v1/files/{file}")).json() for file in files]
    listed_file = (await world.call("GET", "/v1/files", params={"order": "asc"})).json()["data"]
    formats = ["chat", "preference", "prompt"]
    assert [f["format"] for f in documents] == [f["format"] for f in listed_file] == formats
    assert {f["examples"] for f in documents} == {40}


async def test_a_file_of_two_formats_is_refused_by_line(world: World) -> None:
    for rows in ((DATASET, PAIRS), (PAIRS, DATASET)):
        files = {"file": ("both.jsonl", b"\n".join(rows))}
        response = await world.call("POST", "/v1/files", files=files, data={"purpose": "fine-tune"})

        error = response.json()["error"]
        assert (response.status_code, error["counts"]) == (400, {"mixed_formats": 40})
        assert error["errors"][0]["line"] == 41


async def test_a_dpo_job_is_shown_planned_and_handed_to_nodes(world: World) -> None:
    pairs = await world.upload(PAIRS)
    job = await world.submit(training_file=pairs, validation_file=pairs, method=DPO)
    spec = await read_run_spec(world, job["id"])

    assert job["method"] == {
        "type": "dpo",
        "dpo": {
            "hyperparameters": job["hyperparameters"] | {"beta": 0.1},
            "loss": "sigmoid",
            "label_smoothing": 0.1,
        },
    }
    assert job["hyperparameters"]["n_epochs"] == 2
    assert job["plan"]["recipe"]["learning_rate"] == 1e-6
    assert (spec.method, spec.dpo) == ("dpo", Dpo(beta=0.1, label_smoothing=0.1))
    assert spec.verify


async def test_an_orpo_job_is_shown_planned_and_handed_to_nodes(world: World) -> None:
    pairs = await world.upload(PAIRS)
    orpo_plan, dpo_plan = [(await create_job(world, pairs, method=m))["plan"] for m in (ORPO, DPO)]
    job = await world.submit(training_file=pairs, validation_file=pairs, method=ORPO)
    spec = await read_run_spec(world, job["id"])
    default_job = await create_job(world, pairs, method={"type": "orpo"})

    assert job["method"] == {
        "type": "orpo",
        "orpo": {"hyperparameters": job["hyperparameters"] | {"beta": 0.25}},
    }
    assert default_job["method"]["orpo"]["hyperparameters"]["beta"] == 0.1
    assert job["plan"]["recipe"]["learning_rate"] == 5e-6
    assert (spec.method, json.loads(spec.method_options)) == ("orpo", {"beta": 0.25})
    assert (spec.dpo, spec.sequences_per_row, spec.verify) == (None, 2, True)
    assert orpo_plan["memory"]["parameters"] < dpo_plan["memory"]["parameters"], "a reference"
    assert orpo_plan["memory"]["logits"] == dpo_plan["memory"]["logits"]
    assert orpo_plan["options"][0]["seconds_per_step"] < dpo_plan["options"][0]["seconds_per_step"]


async def test_a_reward_model_is_shown_planned_and_handed_to_nodes(world: World) -> None:
    pairs = await world.upload(PAIRS)
    job = await world.submit(training_file=pairs, validation_file=pairs, method=REWARD)
    spec = await read_run_spec(world, job["id"])

    assert job["method"] == {
        "type": "reward",
        "reward": {"hyperparameters": job["hyperparameters"], "loss": "bradley_terry"},
    }
    assert job["hyperparameters"]["n_epochs"] == 2
    assert job["plan"]["recipe"]["learning_rate"] == spec.learning_rate == 1e-5
    assert (spec.method, spec.dpo, spec.packing) == ("reward", None, False)


async def test_options_of_training_are_planned_and_handed_to_nodes(world: World) -> None:
    options = {"packing": True, "ema_decay": 0.99, "verify": False}
    default_job, optional = await world.submit(), await world.submit(training=options)
    specs = [await read_run_spec(world, job["id"]) for job in (default_job, optional)]

    recipes = [job["plan"]["recipe"] for job in (default_job, optional)]
    needs = [job["plan"]["memory"]["optimizer"] for job in (default_job, optional)]
    assert (specs[1].packing, specs[1].ema_decay) == (True, 0.99)
    assert (recipes[1]["packing"], recipes[1]["ema_decay"]) == (True, 0.99)
    assert ("verify" in specs[0].to_plain(), "verify" in specs[1].to_plain()) == (True, False)
    assert (specs[0].packing, recipes[0].get("packing", False)) == (False, False)
    default_fields = {"ema_decay", "ranked", "answers", "mix", "curriculum"}
    assert recipes[0].keys().isdisjoint(default_fields)
    assert needs[0] < needs[1]


async def test_margins_are_measured_shown_and_kept_in_the_result(world: World) -> None:
    job = await world.submit(training_file=await world.upload(PAIRS), method=DPO)
    nodes = await boot(world, job["id"])
    number = await train(world, nodes, step=1)
    measured = replace(metrics(2), margin=0.25)
    await nodes[0].say(NodePhase.RUNNING, number, step=2, metrics=(measured,))
    running = await world.job(job["id"])
    await commit(world, job["id"], committed(job["plan"]["total_steps"], number, "final"))
    await say_all(nodes, NodePhase.FINISHED, number, step=job["plan"]["total_steps"])
    await world.tick(2)

    (file,) = (await world.job(job["id"]))["result_files"]
    series = (await world.call("GET", f"{JOBS}/{job['id']}/metrics")).json()["data"]
    csv_response = await world.call(
        "GET", f"/v1/files/{file}/content", headers={"accept": "text/csv"}
    )
    file_object = (await world.call("GET", f"/v1/files/{file}")).json()
    rows = list(csv.DictReader(io.StringIO(csv_response.text)))

    assert running["progress"]["margin"] == 0.25
    assert [row["margin"] for row in series] == [None, 0.25]
    assert list(rows[0]) == [
        *("step", "train_loss", "train_accuracy", "valid_loss", "valid_mean_token_accuracy"),
        "train_reward_margin",
    ]
    assert [row["train_reward_margin"] for row in rows] == ["", "0.25"]
    assert (file_object["bytes"], "format" in file_object) == (len(csv_response.content), False)


RANKED = {"type": "reward", "reward": {"loss": "ranked_margin", "margin_end": 0.4}}
CLASSIFY = {"type": "classification"}


async def test_rankings_are_planned_with_the_most_answers_of_either_file(world: World) -> None:
    three_answers, four_answers = await world.upload(rankings(3)), await world.upload(rankings(4))
    job = await world.submit(
        training_file=three_answers, validation_file=four_answers, method=RANKED
    )
    spec = await read_run_spec(world, job["id"])

    margins = {"margin_start": 0.1, "margin_end": 0.4}
    hyper = {"hyperparameters": job["hyperparameters"]}
    assert job["method"] == {
        "type": "reward",
        "reward": {**hyper, "loss": "ranked_margin", **margins},
    }
    assert (spec.ranked, spec.answers_per_row, spec.sequences_per_row) == (Ranked(**margins), 4, 4)
    file = (await world.call("GET", f"/v1/files/{three_answers}")).json()
    assert (file["format"], file["examples"]) == ("ranking", 40)


async def test_preferences_are_rankings_of_two(world: World) -> None:
    job = await world.submit(training_file=await world.upload(PAIRS), method=RANKED)
    spec = await read_run_spec(world, job["id"])

    assert (spec.ranked is not None, spec.answers_per_row) == (True, 2)


async def test_a_plan_counts_every_answer(world: World) -> None:
    """Of two plans the one of more answers needs more memory for a micro-step."""
    small_file, large_file = await world.upload(rankings(2)), await world.upload(rankings(16))
    options = {"method": RANKED, "training": {"micro_batch": 1, "zero_stage": 1}}
    jobs = [await create_job(world, file, **options) for file in (small_file, large_file)]

    memory = [job["plan"]["memory"]["activations"] for job in jobs]

    assert memory[1] == 8 * memory[0]


async def test_a_classification_gets_the_labels_of_its_training_file(world: World) -> None:
    file, fewer = await world.upload(labelled("good", "bad")), await world.upload(labelled("bad"))
    job = await world.submit(training_file=file, validation_file=fewer, method=CLASSIFY)
    spec = await read_run_spec(world, job["id"])
    file_object = (await world.call("GET", f"/v1/files/{file}")).json()

    assert (spec.method, spec.labels, spec.sequences_per_row) == (
        "classification",
        ("bad", "good"),
        1,
    )
    assert (file_object["format"], file_object["labels"]) == ("labelled_text", ["bad", "good"])
    assert job["method"]["type"] == "classification"


async def test_an_order_of_rows_is_planned_and_handed_to_nodes(world: World) -> None:
    mixed_job = await world.submit(training={"mix": {"short_share": 0.5}})
    eased = await world.submit(training={"curriculum": {"until_step": 7}})

    specs = [await read_run_spec(world, job["id"]) for job in (mixed_job, eased)]

    assert [(s.mix, s.curriculum) for s in specs] == [
        (Mix(threshold_tokens=512, short_share=0.5), None),
        (None, Curriculum(until_step=7, start_share=0.2)),
    ]
    assert mixed_job["plan"]["recipe"]["mix"] == {"threshold_tokens": 512, "short_share": 0.5}


@pytest.mark.parametrize(
    ("training", "precision"),
    [
        ({}, "fp32"),  # on a CPU
        ({"precision": "fp16", "zero_stage": 1}, "fp16"),
        ({"precision": "fp32", "zero_stage": 2, "learning_rate": 3e-4}, "fp32"),
        ({"precision": "bf16", "zero_stage": 3, "offload": "parameters"}, "bf16"),
    ],
)
async def test_the_shown_configuration_is_that_of_the_run_spec_that_nodes_get(
    world: World, training: dict[str, object], precision: str
) -> None:
    job = await world.submit(training=training)
    await boot(world, job["id"])
    data, _ = await world.store.read(job["id"], RUN_SPEC)
    spec = RunSpec.from_json(data)
    processes = spec.nodes * spec.processes_per_node

    view = await world.job(job["id"])

    config = build_config(spec, processes)
    assert view["deepspeed"] == {"world_size": processes, "config": config}
    assert view["plan"]["recipe"]["precision"] == spec.precision == precision
    assert job["deepspeed"]["world_size"] == processes, "it is shown before the job has machines"
