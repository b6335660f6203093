"""A job shows the configuration that its trainer hands to DeepSpeed."""

import pytest

from tests.nodes.scripted_node import boot
from tests.world import World
from trainer.contract import RUN_SPEC, RunSpec
from trainer.engine.deepspeed_engine import build_config


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

    shown = await world.job(job["id"])

    config = build_config(spec, processes)
    assert shown["deepspeed"] == {"world_size": processes, "config": config}
    assert shown["plan"]["recipe"]["precision"] == spec.precision == precision
    assert job["deepspeed"]["world_size"] == processes, "it is shown before the job has machines"
