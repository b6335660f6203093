"""Jobs that learn from rankings, labels, or in an order of their own."""

from tests.datasets import PAIRS, labelled, rankings
from tests.integration.api.jobs.test_preferences import create_job, read_run_spec
from tests.world import World
from trainer.contract import Curriculum, Mix, Ranked

RANKED = {"type": "reward", "reward": {"loss": "ranked_margin", "margin_end": 0.4}}
CLASSIFY = {"type": "classification"}


async def test_rankings_are_planned_with_the_most_answers_of_either_file(world: World) -> None:
    three, four = await world.upload(rankings(3)), await world.upload(rankings(4))
    job = await world.submit(training_file=three, validation_file=four, method=RANKED)
    spec = await read_run_spec(world, job["id"])

    margins = {"margin_start": 0.1, "margin_end": 0.4}
    hyper = {"hyperparameters": job["hyperparameters"]}
    assert job["method"] == {
        "type": "reward",
        "reward": {**hyper, "loss": "ranked_margin", **margins},
    }
    assert (spec.ranked, spec.answers_per_row, spec.sequences_per_row) == (Ranked(**margins), 4, 4)
    file = (await world.call("GET", f"/v1/files/{three}")).json()
    assert (file["format"], file["examples"]) == ("ranking", 40)


async def test_preferences_are_rankings_of_two(world: World) -> None:
    job = await world.submit(training_file=await world.upload(PAIRS), method=RANKED)
    spec = await read_run_spec(world, job["id"])

    assert (spec.ranked is not None, spec.answers_per_row) == (True, 2)


async def test_a_plan_counts_every_answer(world: World) -> None:
    """Of two plans the one of more answers needs more memory for a micro-step."""
    few, many = await world.upload(rankings(2)), await world.upload(rankings(16))
    fixed = {"method": RANKED, "training": {"micro_batch": 1, "zero_stage": 1}}
    jobs = [await create_job(world, file, **fixed) for file in (few, many)]

    memory = [job["plan"]["memory"]["activations"] for job in jobs]

    assert memory[1] == 8 * memory[0]


async def test_a_classification_gets_the_labels_of_its_training_file(world: World) -> None:
    file, fewer = await world.upload(labelled("good", "bad")), await world.upload(labelled("bad"))
    job = await world.submit(training_file=file, validation_file=fewer, method=CLASSIFY)
    spec = await read_run_spec(world, job["id"])
    shown = (await world.call("GET", f"/v1/files/{file}")).json()

    assert (spec.method, spec.labels, spec.sequences_per_row) == (
        "classification",
        ("bad", "good"),
        1,
    )
    assert (shown["format"], shown["labels"]) == ("labelled_text", ["bad", "good"])
    assert job["method"]["type"] == "classification"


async def test_an_order_of_rows_is_planned_and_handed_to_nodes(world: World) -> None:
    mixed = await world.submit(training={"mix": {"short_share": 0.5}})
    eased = await world.submit(training={"curriculum": {"until_step": 7}})

    specs = [await read_run_spec(world, job["id"]) for job in (mixed, eased)]

    assert [(s.mix, s.curriculum) for s in specs] == [
        (Mix(threshold_tokens=512, short_share=0.5), None),
        (None, Curriculum(until_step=7, start_share=0.2)),
    ]
    assert mixed["plan"]["recipe"]["mix"] == {"threshold_tokens": 512, "short_share": 0.5}
