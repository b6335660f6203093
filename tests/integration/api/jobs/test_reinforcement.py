"""Jobs that learn from grades: the file, the grader, what nodes get, what is measured."""

import csv
import io
import json
from dataclasses import replace
from typing import Any

from tests.datasets import GRADER, PROMPT, prompts
from tests.integration.api.jobs.test_preferences import JOBS, read_run_spec
from tests.nodes.scripted_node import boot, commit, committed, metrics, say_all, train
from tests.world import World
from trainer.contract import NodePhase, Reinforcement

GRPO: dict[str, Any] = {"type": "reinforcement", "reinforcement": {"grader": GRADER}}


async def test_a_grader_and_every_number_are_shown_planned_and_handed_to_nodes(
    world: World,
) -> None:
    rows = await world.upload(prompts())
    numbers: Any = {"algorithm": "ppo", "beta": 0.1, "kl_target": 4.0, "max_answer_tokens": 100}
    method = {"type": "reinforcement", "reinforcement": {"grader": GRADER} | numbers}
    job = await world.submit(training_file=rows, validation_file=rows, method=method)
    spec = await read_run_spec(world, job["id"])

    shown = job["method"]["reinforcement"]
    assert job["method"]["type"] == "reinforcement"
    assert shown["grader"] == GRADER
    assert shown["hyperparameters"] == job["hyperparameters"] | {
        "eval_interval": job["plan"]["recipe"]["eval_steps"],
        "reasoning_effort": "default",
    }
    assert (numbers | {"answers": 8}).items() <= shown.items()
    assert job["plan"]["recipe"]["learning_rate"] == 1e-6
    assert any("The step time is estimated" in warning for warning in job["plan"]["warnings"])
    found = spec.reinforcement
    assert found is not None
    assert json.loads(found.grader) == GRADER
    assert found == Reinforcement(grader=found.grader, answers=8, **numbers)
    assert (spec.method, spec.sequences_per_row, spec.packing) == ("reinforcement", 8, False)


async def test_prompts_that_leave_no_room_for_the_answer_are_events_of_the_job(
    world: World,
) -> None:
    """Of the tiny model's 512 tokens the answer has 256, and the prompt the rest."""
    long = PROMPT | {"messages": [{"role": "user", "content": "word " * 250}]}
    await world.submit(training_file=await world.upload(prompts(long)), method=GRPO)
    await world.tick(3)

    (job,) = (await world.call("GET", JOBS)).json()["data"]
    events = (await world.call("GET", f"{JOBS}/{job['id']}/events?limit=100")).json()["data"]

    (told_of,) = [e for e in events if e["code"] == "file.long_row"]
    assert "line 40: the prompt has 1" in told_of["message"]
    assert "with more than 256 its answer has too little room" in told_of["message"]


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
    plain = await world.call("GET", f"/v1/files/{file}/content", headers={"accept": "text/csv"})
    rows = list(csv.DictReader(io.StringIO(plain.text)))

    names = ("reward", "kl", "answer_tokens", "valid_loss")
    assert [running[name] for name in names] == [0.25, 1.5, 40.0, -0.5]
    assert running["margin"] is None
    assert [(row["reward"], row["grader_errors"]) for row in series] == [(None, 0), (0.25, 3)]
    ours = ["train_mean_reward", "valid_mean_reward", "train_kl"]
    ours += ["train_mean_answer_tokens", "train_grader_errors"]
    assert list(rows[0])[5:] == ours
    assert [tuple(row[name] for name in ours) for row in rows] == [
        ("", "", "", "", "0"),
        ("0.25", "0.5", "1.5", "40.0", "3"),
    ]
