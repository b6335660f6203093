"""A job shows the configuration that its trainer hands to DeepSpeed."""

import pytest

from tests.nodes.scripted_node import boot
from tests.world import World
from trainer.contract import RUN_SPEC, RunSpec
from trainer.engine.deepspeed_engine import build_config

JOBS = "/v1/fine_tuning/jobs"


@pytest.mark.parametrize(
    "training",
    [
        {},
        {"precision": "fp16", "zero_stage": 1},
        {"precision": "fp32", "zero_stage": 2, "learning_rate": 3e-4},
        {"zero_stage": 3, "offload": "parameters"},
    ],
)
async def test_the_shown_configuration_is_that_of_the_run_spec_that_nodes_get(
    world: World, training: dict[str, object]
) -> None:
    job = await world.submit(training=training)
    await boot(world, job["id"])
    data, _ = await world.store.read(job["id"], RUN_SPEC)
    spec = RunSpec.from_json(data)
    processes = spec.nodes * spec.processes_per_node

    shown = (await world.call("GET", f"{JOBS}/{job['id']}")).json()["deepspeed"]

    assert shown == {"world_size": processes, "config": build_config(spec, processes)}
    assert job["deepspeed"]["world_size"] == processes, "it is shown before the job has machines"


@pytest.mark.parametrize(("training", "used"), [({}, "fp32"), ({"precision": "bf16"}, "bf16")])
async def test_a_cpu_node_gets_fp32_unless_the_job_names_a_precision(
    world: World, training: dict[str, object], used: str
) -> None:
    job = await world.submit(training=training)
    await boot(world, job["id"])  # the job was planned again with what its rows hold
    data, _ = await world.store.read(job["id"], RUN_SPEC)

    assert RunSpec.from_json(data).precision == used
    assert (await world.job(job["id"]))["plan"]["recipe"]["precision"] == used
