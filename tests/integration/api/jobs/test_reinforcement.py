"""Jobs that learn from grades: the file, the grader, what nodes get, what is measured."""

import csv
import io
import json
from dataclasses import replace
from typing import Any

from tests.datasets import GRADER, PAIRS, PROMPT, REWARD, prompts
from tests.integration.api.jobs.test_preferences import read_run_spec
from tests.integration.api.models.test_lineage import archive
from tests.integration.finished_jobs import READ, make_model
from tests.nodes.scripted_node import boot, commit, committed, metrics, say_all, train
from tests.world import JOBS, MODEL, World
from trainer.contract import RUN_SPEC, NodePhase, Reinforcement, RunSpec

GRPO: dict[str, Any] = {"type": "reinforcement", "reinforcement": {"grader": GRADER}}


async def test_a_grader_is_shown_planned_and_handed_to_nodes(world: World) -> None:
    rows = await world.upload(prompts())
    numbers: Any = {"algorithm": "ppo", "beta": 0.1, "kl_target": 4.0, "max_answer_tokens": 100}
    method = {"type": "reinforcement", "reinforcement": {"grader": GRADER} | numbers}
    job = await world.submit(training_file=rows, validation_file=rows, method=method)
    spec = await read_run_spec(world, job["id"])

    method_view = job["method"]["reinforcement"]
    assert job["method"]["type"] == "reinforcement"
    assert method_view["grader"] == GRADER
    assert method_view["hyperparameters"] == job["hyperparameters"] | {
        "eval_interval": job["plan"]["recipe"]["eval_steps"],
        "reasoning_effort": "default",
    }
    assert (numbers | {"answers": 8}).items() <= method_view.items()
    assert job["plan"]["recipe"]["learning_rate"] == 1e-6
    assert any("The step time is estimated" in warning for warning in job["plan"]["warnings"])
    reinforcement = spec.reinforcement
    assert reinforcement is not None
    assert json.loads(reinforcement.grader) == GRADER
    assert reinforcement == Reinforcement(grader=reinforcement.grader, answers=8, **numbers)
    assert (spec.method, spec.sequences_per_row, spec.packing) == ("reinforcement", 8, False)


async def test_prompts_without_room_for_an_answer_are_events(world: World) -> None:
    """Of the tiny model's 512 tokens the answer has 256, and the prompt the rest."""
    long_row = PROMPT | {"messages": [{"role": "user", "content": "word " * 250}]}
    await world.submit(training_file=await world.upload(prompts(long_row)), method=GRPO)
    await world.tick(3)

    (job,) = (await world.call("GET", JOBS)).json()["data"]
    events = (await world.call("GET", f"{JOBS}/{job['id']}/events?limit=100")).json()["data"]

    (warning,) = [e for e in events if e["code"] == "file.long_row"]
    assert "line 40: the prompt has 1" in warning["message"]
    assert "with more than 256 its answer has too little room" in warning["message"]


async def test_grades_are_measured_shown_and_kept_in_the_result(world: World) -> None:
    job = await world.submit(training_file=await world.upload(prompts()), method=GRPO)
    nodes = await boot(world, job["id"])
    number = await train(world, nodes, step=1)
    measured = replace(
        metrics(2), reward=0.25, kl=1.5, answer_tokens=40.0, grader_errors=3, valid_loss=-0.5
    )
    await nodes[0].say(NodePhase.RUNNING, number, step=2, metrics=(measured,))
    running = (await world.job(job["id"]))["progress"]
    await commit(world, job["id"], committed(job["plan"]["total_steps"], number, "final"))
    await say_all(nodes, NodePhase.FINISHED, number, step=job["plan"]["total_steps"])
    await world.tick(2)

    (file,) = (await world.job(job["id"]))["result_files"]
    series = (await world.call("GET", f"{JOBS}/{job['id']}/metrics")).json()["data"]
    csv_response = await world.call(
        "GET", f"/v1/files/{file}/content", headers={"accept": "text/csv"}
    )
    rows = list(csv.DictReader(io.StringIO(csv_response.text)))

    names = ("reward", "kl", "answer_tokens", "valid_loss")
    assert [running[name] for name in names] == [0.25, 1.5, 40.0, -0.5]
    assert running["margin"] is None
    assert [(row["reward"], row["grader_errors"]) for row in series] == [(None, 0), (0.25, 3)]
    metric_names = ["train_mean_reward", "valid_mean_reward", "train_kl"]
    metric_names += ["train_mean_answer_tokens", "train_grader_errors"]
    assert list(rows[0])[5:] == metric_names
    assert [tuple(row[name] for name in metric_names) for row in rows] == [
        ("", "", "", "", "0"),
        ("0.25", "0.5", "1.5", "40.0", "3"),
    ]


def asking_method(model: str) -> dict[str, Any]:
    return {
        "type": "reinforcement",
        "reinforcement": {"grader": {"type": "reward_model", "model": model}},
    }


def mixed_method(model: str) -> dict[str, Any]:
    graders = {"right": GRADER, "liked": {"type": "reward_model", "model": model}}
    grader = {"type": "multi", "graders": graders, "calculate_output": "right + 0.1 * liked"}
    return {"type": "reinforcement", "reinforcement": {"grader": grader}}


async def make_judge(world: World) -> dict[str, Any]:
    return await make_model(world, training_file=await world.upload(PAIRS), method=REWARD)


async def test_nodes_get_the_reward_model_beside_the_base_model(world: World) -> None:
    judge, rows = await make_judge(world), await world.upload(prompts())
    method = mixed_method(judge["fine_tuned_model"])
    job = await world.submit(training_file=rows, method=method)
    (node, *_) = await boot(world, job["id"])
    spec = RunSpec.from_json((await world.store.read(job["id"], RUN_SPEC))[0])

    assert spec.reward_model is not None
    assert spec.base_model.name == MODEL
    assert spec.reward_model.name == judge["fine_tuned_model"]
    assert spec.reward_model.revision == judge["result"]["manifest_sha256"]
    path = f"{judge['id']}/{judge['result']['path']}"
    expected = sorted(f"{path}/{name}" for name in READ)
    assert sorted(f.path for f in spec.reward_model.files) == expected
    assert node.seat is not None
    assert sorted(n for n in node.seat.grants.inputs if n.startswith(judge["id"])) == expected
    grader = job["method"]["reinforcement"]["grader"]
    assert grader["graders"]["liked"]["model"] == judge["fine_tuned_model"]


async def test_a_plan_counts_the_reward_model_on_every_gpu(world: World) -> None:
    judge, rows = await make_judge(world), await world.upload(prompts())

    plain_job = await world.submit(
        training_file=rows, method={"type": "reinforcement", "reinforcement": {"grader": GRADER}}
    )
    judged = await world.submit(training_file=rows, method=asking_method(judge["id"]))

    parameters, judged_parameters = (
        job["plan"]["memory"]["parameters"] for job in (plain_job, judged)
    )
    assert (parameters, judged_parameters) == (4 * 139_584, 8 * 139_584), (
        "in fp32, of the same size as the policy"
    )


async def test_a_reward_model_stays_online_while_it_is_asked(world: World) -> None:
    judge, rows = await make_judge(world), await world.upload(prompts())
    reader = await world.submit(training_file=rows, method=mixed_method(judge["id"]))

    refusal = await archive(world, judge["id"])

    assert refusal["error"]["message"].startswith(
        f"{reader['id']} goes on and reads the final model"
    )
