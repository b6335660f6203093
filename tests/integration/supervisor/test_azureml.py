"""The supervisor as the process of a job in Azure ML: configured, ended and started again by it."""

import asyncio
import os
import sys
from asyncio.subprocess import Process

from tests.nodes.supervised import ROOT, Scene, node_config
from trainer.contract import NodePhase
from trainer.supervisor.control.launch import find_marked_processes

SECRET = "REKINDLE_NODE"
OF_AZURE = {
    "AZ_BATCH_NODE_ID": "one",
    "AZUREML_RUN_ID": "rk-1",
    "AZUREML_RUN_TOKEN": "secret",
    "MASTER_ADDR": "127.0.0.1",
    "NODE_RANK": "0",
    "RANK": "0",
    "WORLD_SIZE": "2",
}


async def start(scene: Scene, folder: str) -> Process:
    """Run it as Azure ML does: in a working directory of the job's, with all in the environment."""
    where = scene.folder / folder
    where.mkdir()
    with (where / "log").open("wb") as log:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.nodes.standin_supervisor", "train", str(scene.folder)),
            cwd=where,
            stderr=log,
            env={
                **OF_AZURE,
                SECRET: node_config(scene).to_json(),
                "PATH": os.defpath,
                "PYTHONPATH": str(ROOT),
                "REKINDLE_MEMORY_DIR": "memory",
            },
        )


async def test_a_job_that_is_cancelled_saves_and_one_that_starts_again_begins_anew(
    scene: Scene,
) -> None:
    node = scene.service.add("one")
    first = await start(scene, "first")
    await scene.generation(node)
    await scene.trains(node)
    ranks = find_marked_processes(str(scene.folder / "first" / "rekindle"))
    known = {name for process in ranks for name in process.environ()}
    first.terminate()

    assert await first.wait() == 0
    assert known
    assert not known & {SECRET, *OF_AZURE}
    said = node.registrations[0]
    assert (said.vm_id, said.name, said.address) == ("one", "rk-1_0", "127.0.0.1")
    assert node.has_said(NodePhase.STOPPED, 1)
    assert (newest := scene.job.head().newest)
    assert newest.step == 10

    second = await start(scene, "second")
    await scene.until(lambda: len(node.boots) == 2)
    await scene.generation(node, number=2)
    await scene.until(lambda: node.has_said(NodePhase.RUNNING, 2))
    second.terminate()
    assert await second.wait() == 0
