"""A checkpoint that cannot be loaded steps aside; no machine's word alone is enough for that."""

import hashlib
from dataclasses import replace

import pytest

from tests.nodes.scripted_node import ScriptedNode, boot, commit, committed, say_all, train
from tests.world import World
from trainer.contract import (
    HEAD,
    MANIFEST,
    BrokenCheckpoint,
    Committed,
    FileEntry,
    Generation,
    Head,
    Manifest,
    NodePhase,
)

SHARDS = ("rank-00000.safetensors", "rank-00001.safetensors")


async def save_checkpoint(world: World, job_id: str, step: int, generation: int) -> Committed:
    """Return a checkpoint that lies whole in Blob, committed."""
    entry = committed(step, generation)
    files = []
    for name in SHARDS:
        data = f"{name} of step {step}".encode()
        etag = await world.store.write(job_id, f"{entry.path}/{name}", data)
        files.append(FileEntry(name=name, size=len(data), etag=etag, crc64nvme="0" * 16))
    manifest = Manifest(
        step=step,
        consumed_samples=step,
        world_size=2,
        generation=generation,
        kind="periodic",
        files=tuple(files),
        run_spec_sha256="",
        saved_at=0.0,
    )
    data = manifest.to_json().encode()
    await world.store.write(job_id, f"{entry.path}/{MANIFEST}", data)
    committed_entry = Committed(
        **vars(entry) | {"manifest_sha256": hashlib.sha256(data).hexdigest(), "size": 80}
    )
    await commit(world, job_id, committed_entry)
    return committed_entry


async def train_and_stop(
    world: World, *steps: int
) -> tuple[str, list[ScriptedNode], list[Committed]]:
    """Return a job with these checkpoints whose first generation has just stopped by itself."""
    job_id = (await world.submit())["id"]
    nodes = await boot(world, job_id)
    number = await train(world, nodes, step=max(steps, default=1))
    checkpoints = [await save_checkpoint(world, job_id, step, number) for step in steps]
    await say_all(nodes, NodePhase.STOPPED, number, step=max(steps, default=1))
    return job_id, nodes, checkpoints


async def next_generation(world: World, nodes: list[ScriptedNode]) -> Generation:
    """Return the generation that the nodes are told to start next."""
    await world.tick(2)
    directives = [await node.hear() for node in nodes]
    generation = directives[0].generation
    assert generation is not None, directives
    return generation


async def report_broken(node: ScriptedNode, generation: Generation, file: str = SHARDS[1]) -> None:
    """Say that what the generation loads is broken."""
    assert generation.checkpoint is not None
    fault = BrokenCheckpoint(path=generation.checkpoint.path, file=file, reason="is wrong")
    step = generation.checkpoint.step  # a run begins at the step that it loads
    await node.say(NodePhase.STOPPED, generation.number, step=step, broken=fault)


async def stop_all(nodes: list[ScriptedNode], generation: Generation) -> None:
    await say_all(nodes, NodePhase.STOPPED, generation.number)


async def list_checkpoints(world: World, job_id: str) -> dict[int, str]:
    response = await world.call("GET", f"/v1/fine_tuning/jobs/{job_id}/checkpoints")
    return {c["step_number"]: c["kept_as"] for c in response.json()["data"]}


async def head_of(world: World, job_id: str) -> Head:
    data, _ = await world.store.read(job_id, HEAD)
    return Head.from_json(data)


async def test_training_resumes_from_the_checkpoint_before_with_one_event(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    job_id, nodes, checkpoints = await train_and_stop(world, 40, 60, 90)
    first = await next_generation(world, nodes)
    await world.store.delete(job_id, f"{checkpoints[-1].path}/{SHARDS[1]}")
    await report_broken(nodes[1], first)
    await stop_all(nodes[:1], first)
    second = await next_generation(world, nodes)

    assert first.checkpoint == checkpoints[-1]
    assert second.checkpoint == checkpoints[-2]
    assert (await head_of(world, job_id)).checkpoints == tuple(checkpoints[:-1])
    assert await list_checkpoints(world, job_id) == {60: "recent", 40: "recent"}
    (event,) = await world.events(job_id, "checkpoint.broken")
    assert event["level"] == "error"
    assert event["message"] == (
        "The checkpoint of step 90 cannot be loaded: rank-00001.safetensors is gone. "
        "Training resumes from step 60; 30 steps are repeated."
    )
    assert (await world.job(job_id))["progress"]["lost_steps"] == 30
    (line,) = [vars(r) for r in caplog.records if r.getMessage() == "checkpoint.broken"]
    assert (line["levelname"], line["job"], line["step"]) == ("ERROR", job_id, 90)  # the operator


async def test_a_checkpoint_that_head_names_by_another_hash_than_at_first_is_not_loaded(
    world: World,
) -> None:
    job_id, nodes, checkpoints = await train_and_stop(world, 40, 60)
    first = await next_generation(world, nodes)
    data, etag = await world.store.read(job_id, HEAD)
    head = Head.from_json(data)
    forged_entries = (checkpoints[0], replace(checkpoints[1], manifest_sha256="f" * 64))
    await world.store.write(
        job_id, HEAD, replace(head, checkpoints=forged_entries).to_json().encode(), if_match=etag
    )
    await stop_all(nodes, first)
    second = await next_generation(world, nodes)

    assert first.checkpoint == checkpoints[1]
    assert second.checkpoint == checkpoints[0]
    assert (await head_of(world, job_id)).checkpoints == (checkpoints[0],)
    (event,) = await world.events(job_id, "checkpoint.broken")
    assert "manifest.json is another one than HEAD named first" in str(event["message"])


async def test_without_a_usable_checkpoint_training_starts_over_with_an_event(world: World) -> None:
    job_id, nodes, checkpoints = await train_and_stop(world, 30, 40)
    first = await next_generation(world, nodes)
    await world.store.delete(job_id, f"{checkpoints[0].path}/{SHARDS[0]}")
    await world.store.write(job_id, f"{checkpoints[1].path}/{MANIFEST}", b"{}")
    await report_broken(nodes[0], first, MANIFEST)
    await stop_all(nodes[1:], first)
    second = await next_generation(world, nodes)

    assert second.checkpoint is None
    messages = [e["message"] for e in await world.events(job_id, "checkpoint.broken")]
    assert len(messages) == 2
    assert any("manifest.json is another one than was committed" in text for text in messages)
    assert any(
        "starts over from the base model; 40 steps are repeated" in text for text in messages
    )
    assert (await world.job(job_id))["latest_checkpoint"] is None


async def test_a_machine_alone_in_its_complaint_is_replaced_and_no_checkpoint_is_dropped(
    world: World,
) -> None:
    job_id, nodes, checkpoints = await train_and_stop(world, 40, 60)
    for _ in range(2):
        generation = await next_generation(world, nodes)
        await report_broken(nodes[0], generation)
        await stop_all(nodes[1:], generation)
    await world.tick(2)

    attempts = await world.attempts_of(job_id)
    assert attempts[0]["outcome"] == "unresponsive"
    assert "retrying on other machines" in attempts[0]["reason"]
    new_nodes = await boot(world, job_id)
    generation = await next_generation(world, new_nodes)
    assert generation.checkpoint == checkpoints[-1]
    assert (await head_of(world, job_id)).checkpoints == tuple(checkpoints)
    assert await world.events(job_id, "checkpoint.broken") == []
    await report_broken(new_nodes[0], generation)  # now two machines say so
    await stop_all(new_nodes[1:], generation)
    assert (await next_generation(world, new_nodes)).checkpoint == checkpoints[0]
    assert await list_checkpoints(world, job_id) == {40: "recent"}


async def test_a_node_is_not_heard_on_checkpoints_that_it_was_not_to_load(world: World) -> None:
    job_id, nodes, checkpoints = await train_and_stop(world, 40, 60)
    generation = await next_generation(world, nodes)
    await world.store.delete(job_id, f"{checkpoints[0].path}/{SHARDS[0]}")
    fault = BrokenCheckpoint(path=checkpoints[0].path, file=SHARDS[0], reason="is gone")
    await say_all(nodes, NodePhase.STOPPED, generation.number, broken=fault)

    assert (await next_generation(world, nodes)).checkpoint == checkpoints[-1]
    assert (await head_of(world, job_id)).checkpoints == tuple(checkpoints)


async def test_a_broken_one_that_an_older_head_brings_back_is_taken_out_again(world: World) -> None:
    job_id, nodes, checkpoints = await train_and_stop(world, 40, 60)
    first = await next_generation(world, nodes)
    await world.store.delete(job_id, f"{checkpoints[-1].path}/{SHARDS[1]}")
    await report_broken(nodes[1], first)
    await stop_all(nodes[:1], first)
    second = await next_generation(world, nodes)
    restored = Head(generation=second.number, checkpoints=tuple(checkpoints))
    await world.store.write(job_id, HEAD, restored.to_json().encode())
    await world.tick()
    latest = (await world.job(job_id))["latest_checkpoint"]
    listed = await list_checkpoints(world, job_id)
    await stop_all(nodes, second)

    assert (latest["step_number"], listed) == (40, {40: "recent"})
    assert (await next_generation(world, nodes)).checkpoint == checkpoints[0]
    assert len(await world.events(job_id, "checkpoint.broken")) == 1
