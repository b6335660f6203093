"""Jobs of odds ratio preference optimization: the request, the plan, what nodes get."""

import json

from tests.datasets import PAIRS
from tests.integration.api.jobs.test_preferences import DPO, create_job, read_run_spec
from tests.world import World

ORPO = {"type": "orpo", "orpo": {"hyperparameters": {"n_epochs": 2, "beta": 0.25}}}


async def test_a_job_shows_its_method_with_every_number(world: World) -> None:
    pairs = await world.upload(PAIRS)
    job, usual = [await create_job(world, pairs, method=m) for m in (ORPO, {"type": "orpo"})]

    assert job["method"] == {
        "type": "orpo",
        "orpo": {"hyperparameters": job["hyperparameters"] | {"beta": 0.25}},
    }
    assert usual["method"]["orpo"]["hyperparameters"]["beta"] == 0.1
    assert job["plan"]["recipe"]["learning_rate"] == 5e-6


async def test_nodes_get_the_method_with_the_run_spec(world: World) -> None:
    pairs = await world.upload(PAIRS)
    job = await world.submit(training_file=pairs, validation_file=pairs, method=ORPO)
    spec = await read_run_spec(world, job["id"])

    assert (spec.method, json.loads(spec.method_options)) == ("orpo", {"beta": 0.25})
    assert (spec.dpo, spec.sequences_per_row, spec.verify) == (None, 2, True)


async def test_it_needs_less_memory_and_time_than_dpo_which_keeps_a_reference(world: World) -> None:
    pairs = await world.upload(PAIRS)
    orpo, dpo = [(await create_job(world, pairs, method=m))["plan"] for m in (ORPO, DPO)]

    assert orpo["memory"]["parameters"] < dpo["memory"]["parameters"]
    assert orpo["memory"]["logits"] == dpo["memory"]["logits"]
    assert orpo["options"][0]["seconds_per_step"] < dpo["options"][0]["seconds_per_step"]
