"""Jobs that have succeeded, with a model whose files lie in Blob as a trainer leaves them."""

import json
from dataclasses import replace
from typing import Any

from tests.integration.manifests import seal
from tests.nodes.scripted_node import boot, commit, committed, say_all, train
from tests.vocabulary import tokenizer_files
from tests.world import TINY, World
from trainer.contract import NodePhase

FILES = {
    "adapter/adapter_model.safetensors": b"adapters",
    "config.json": json.dumps(TINY).encode(),
    "model.safetensors": bytes(200 * 1024),  # large enough to be moved
    **tokenizer_files(),
    "train.py": b"no part of a model",
}
READ = [name for name in FILES if "/" not in name and not name.endswith(".py")]


async def make_model(world: World, files: dict[str, bytes] = FILES, **body: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return a job of this request as it is shown once it has its model."""
    world.clock.advance(seconds=1)
    return await finish_job(world, str((await world.submit(**body))["id"]), files)


async def finish_job(world: World, job_id: str, files: dict[str, bytes] = FILES) -> dict[str, Any]:
    """Let it train, export and succeed."""
    nodes = await boot(world, job_id)
    number = await train(world, nodes, step=1)
    last = (await world.job(job_id))["progress"]["total_steps"]
    entry = committed(last, number, "final")
    digest = await seal(world.store, job_id, entry.path, files)
    await commit(world, job_id, replace(entry, manifest_sha256=digest))
    await say_all(nodes, NodePhase.FINISHED, number, step=last)
    await world.tick(3)
    job = await world.job(job_id)
    assert job["status"] == "succeeded", job
    return job
