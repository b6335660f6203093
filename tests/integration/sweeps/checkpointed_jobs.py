"""Jobs that are over and have left checkpoints, sealed as a node seals them."""

import hashlib
from dataclasses import replace
from typing import Any

from tests.nodes.scripted_node import committed, start_training
from tests.world import World
from trainer.contract import (
    HEAD,
    MANIFEST,
    RUN_SPEC,
    Committed,
    FileEntry,
    Head,
    Manifest,
    NodePhase,
    Retention,
)

FILES = {"rank-00000.safetensors": bytes(200 * 1024), "rank-00000.index.json": b"{}"}


async def start_with_checkpoints(
    world: World,
    *steps: int,
    **body: Any,  # noqa: ANN401
) -> tuple[str, list[Committed]]:
    """Return a job that trains, with checkpoints of these steps; multiples of 4 are milestones."""
    world.clock.advance(seconds=1)
    job_id, nodes, number = await start_training(world, **body)
    entries = [await save_checkpoint(world, job_id, step, number) for step in steps]
    await nodes[0].say(NodePhase.RUNNING, number, step=steps[-1], committed=tuple(entries))
    await world.tick()
    return job_id, entries


async def cancel_with_checkpoints(world: World, *steps: int, **body: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return the cancelled job of `training` as the API shows it."""
    job_id, _ = await start_with_checkpoints(world, *steps, **body)
    return await cancel_job(world, job_id)


async def cancel_job(world: World, job_id: str) -> dict[str, Any]:
    """Cancel a job, and see it be over."""
    await world.call("POST", f"/v1/fine_tuning/jobs/{job_id}/cancel")
    for _ in range(20):
        await world.tick()
        if (job := await world.job(job_id))["status"] == "cancelled":
            return job
    raise AssertionError(f"{job_id} is not cancelled")


async def save_checkpoint(world: World, job_id: str, step: int, generation: int) -> Committed:
    """Commit a checkpoint of this step."""
    entry = committed(step, generation)
    digest = await seal_checkpoint(
        world, job_id, entry.path, *(_entry(n, d) for n, d in FILES.items())
    )
    for name, data in FILES.items():
        await world.store.write(job_id, f"{entry.path}/{name}", data)
    entry = replace(entry, manifest_sha256=digest)
    data, etag = await world.store.read(job_id, HEAD)
    head = Head.from_json(data).with_checkpoint(entry, Retention(milestone_every=4))
    await world.store.write(job_id, HEAD, head.to_json().encode(), if_match=etag)
    return entry


async def seal_checkpoint(world: World, job_id: str, path: str, *files: FileEntry) -> str:
    """Write the manifest of a checkpoint; its SHA-256."""
    spec, _ = await world.store.read(job_id, RUN_SPEC)
    manifest = Manifest(
        step=2,
        consumed_samples=16,
        world_size=1,
        generation=1,
        kind="periodic",
        files=files,
        run_spec_sha256=hashlib.sha256(spec).hexdigest(),
        saved_at=0.0,
    )
    data = manifest.to_json().encode()
    await world.store.write(job_id, f"{path}/{MANIFEST}", data)
    return hashlib.sha256(data).hexdigest()


def _entry(name: str, data: bytes) -> FileEntry:
    return FileEntry(name=name, size=len(data), etag="0x1", crc64nvme="0" * 16)
