"""Graders that ask a reward model which another job of the project has made."""

from typing import Any

from tests.datasets import GRADER, PAIRS, REWARD, prompts
from tests.integration.api.models.test_lineage import archive
from tests.integration.finished_jobs import READ, make_model
from tests.nodes.scripted_node import boot
from tests.world import MODEL, World
from trainer.contract import RUN_SPEC, RunSpec


def asking_method(model: str) -> dict[str, Any]:
    return {
        "type": "reinforcement",
        "reinforcement": {"grader": {"type": "reward_model", "model": model}},
    }


def mixed_method(model: str) -> dict[str, Any]:
    parts = {"right": GRADER, "liked": {"type": "reward_model", "model": model}}
    grader = {"type": "multi", "graders": parts, "calculate_output": "right + 0.1 * liked"}
    return {"type": "reinforcement", "reinforcement": {"grader": grader}}


async def make_judge(world: World) -> dict[str, Any]:
    return await make_model(world, training_file=await world.upload(PAIRS), method=REWARD)


async def test_nodes_get_the_reward_model_of_a_part_of_a_grader_beside_the_base_model(
    world: World,
) -> None:
    judge, rows = await make_judge(world), await world.upload(prompts())
    job = await world.submit(training_file=rows, method=mixed_method(judge["id"]))
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

    alone = await world.submit(
        training_file=rows, method={"type": "reinforcement", "reinforcement": {"grader": GRADER}}
    )
    asked = await world.submit(training_file=rows, method=asking_method(judge["id"]))

    plain, more = (job["plan"]["memory"]["parameters"] for job in (alone, asked))
    assert (plain, more) == (4 * 139_584, 8 * 139_584), "in fp32, of the same size as the policy"


async def test_a_reward_model_stays_online_while_it_is_asked(world: World) -> None:
    judge, rows = await make_judge(world), await world.upload(prompts())
    reader = await world.submit(training_file=rows, method=mixed_method(judge["id"]))

    held = await archive(world, judge["id"])

    assert held["error"]["message"].startswith(f"{reader['id']} goes on and reads the final model")
