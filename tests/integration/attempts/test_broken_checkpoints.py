"""A checkpoint that cannot be loaded steps aside; no machine's word alone is enough for that."""

import hashlib
from dataclasses import replace

import pytest

from service.db.attempts import attempts as attempt_rows
from service.db.storage import checkpoint_fault_reports as doubts
from service.reconciler.attempts import findings
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
    whole = Committed(
        **vars(entry) | {"manifest_sha256": hashlib.sha256(data).hexdigest(), "size": 80}
    )
    await commit(world, job_id, whole)
    return whole


async def train_and_stop(
    world: World, *steps: int
) -> tuple[str, list[ScriptedNode], list[Committed]]:
    """Return a job with these checkpoints whose first generation has just stopped by itself."""
    job_id = (await world.submit())["id"]
    nodes = await boot(world, job_id)
    number = await train(world, nodes, step=max(steps, default=1))
    saved = [await save_checkpoint(world, job_id, step, number) for step in steps]
    await say_all(nodes, NodePhase.STOPPED, number, step=max(steps, default=1))
    return job_id, nodes, saved


async def next_generation(world: World, nodes: list[ScriptedNode]) -> Generation:
    """Return the generation that the nodes are told to start next."""
    await world.tick(2)
    told = [await node.hear() for node in nodes]
    generation = told[0].generation
    assert generation is not None, told
    return generation


async def report_broken(node: ScriptedNode, generation: Generation, file: str = SHARDS[1]) -> None:
    """Say that what the generation loads is broken."""
    assert generation.checkpoint is not None
    broken = BrokenCheckpoint(path=generation.checkpoint.path, file=file, reason="is wrong")
    step = generation.checkpoint.step  # a run begins at the step that it loads
    await node.say(NodePhase.STOPPED, generation.number, step=step, broken=broken)


async def stop_all(nodes: list[ScriptedNode], generation: Generation) -> None:
    await say_all(nodes, NodePhase.STOPPED, generation.number)


async def list_checkpoints(world: World, job_id: str) -> dict[int, str]:
    answer = await world.call("GET", f"/v1/fine_tuning/jobs/{job_id}/checkpoints")
    return {c["step_number"]: c["kept_as"] for c in answer.json()["data"]}


async def head_of(world: World, job_id: str) -> Head:
    data, _ = await world.store.read(job_id, HEAD)
    return Head.from_json(data)


async def test_training_resumes_from_the_checkpoint_before_with_one_event(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    job_id, nodes, saved = await train_and_stop(world, 40, 60, 90)
    first = await next_generation(world, nodes)
    await world.store.delete(job_id, f"{saved[-1].path}/{SHARDS[1]}")
    await report_broken(nodes[1], first)
    await stop_all(nodes[:1], first)
    second = await next_generation(world, nodes)

    assert first.checkpoint == saved[-1]
    assert second.checkpoint == saved[-2]
    assert (await head_of(world, job_id)).checkpoints == tuple(saved[:-1])
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
    job_id, nodes, saved = await train_and_stop(world, 40, 60)
    first = await next_generation(world, nodes)
    data, etag = await world.store.read(job_id, HEAD)
    head = Head.from_json(data)
    forged = (saved[0], replace(saved[1], manifest_sha256="f" * 64))
    await world.store.write(
        job_id, HEAD, replace(head, checkpoints=forged).to_json().encode(), if_match=etag
    )
    await stop_all(nodes, first)
    second = await next_generation(world, nodes)

    assert first.checkpoint == saved[1]
    assert second.checkpoint == saved[0]
    assert (await head_of(world, job_id)).checkpoints == (saved[0],)
    (event,) = await world.events(job_id, "checkpoint.broken")
    assert "manifest.json is another one than HEAD named first" in str(event["message"])


async def test_without_a_usable_checkpoint_training_starts_over_with_an_event(world: World) -> None:
    job_id, nodes, saved = await train_and_stop(world, 40)
    first = await next_generation(world, nodes)
    await world.store.write(job_id, f"{saved[0].path}/{MANIFEST}", b"{}")
    await report_broken(nodes[0], first, MANIFEST)
    await stop_all(nodes[1:], first)
    second = await next_generation(world, nodes)

    assert second.checkpoint is None
    (event,) = await world.events(job_id, "checkpoint.broken")
    assert "manifest.json is another one than was committed" in str(event["message"])
    assert "starts over from the base model; 40 steps are repeated" in str(event["message"])
    assert (await world.job(job_id))["latest_checkpoint"] is None


async def test_what_broke_two_checkpoints_at_once_costs_one_start(world: World) -> None:
    job_id, nodes, saved = await train_and_stop(world, 40, 60, 90)
    first = await next_generation(world, nodes)
    for entry in saved[1:]:
        await world.store.delete(job_id, f"{entry.path}/{SHARDS[0]}")
    await report_broken(nodes[0], first)
    await stop_all(nodes[1:], first)
    second = await next_generation(world, nodes)

    assert second.checkpoint == saved[0]
    assert len(await world.events(job_id, "checkpoint.broken")) == 2


async def test_a_machine_alone_in_its_complaint_is_replaced_and_no_checkpoint_is_dropped(
    world: World,
) -> None:
    job_id, nodes, saved = await train_and_stop(world, 40, 60)
    for _ in range(2):
        generation = await next_generation(world, nodes)
        await report_broken(nodes[0], generation)
        await stop_all(nodes[1:], generation)
    await world.tick(2)

    attempts = await world.attempts_of(job_id)
    assert attempts[0]["outcome"] == "unresponsive"
    assert "retrying on other machines" in attempts[0]["reason"]
    again = await boot(world, job_id)
    assert (await next_generation(world, again)).checkpoint == saved[-1]
    assert (await head_of(world, job_id)).checkpoints == tuple(saved)
    assert await world.events(job_id, "checkpoint.broken") == []


async def test_what_a_second_machine_finds_as_well_is_broken(world: World) -> None:
    job_id, nodes, saved = await train_and_stop(world, 40, 60)
    generation = await next_generation(world, nodes)
    for node in nodes:
        await report_broken(node, generation)
    after = await next_generation(world, nodes)

    assert after.checkpoint == saved[0]
    assert await list_checkpoints(world, job_id) == {40: "recent"}


async def test_other_machines_that_agree_with_the_first_are_believed(world: World) -> None:
    job_id, nodes, saved = await train_and_stop(world, 40, 60)
    for _ in range(2):
        generation = await next_generation(world, nodes)
        await report_broken(nodes[0], generation)
        await stop_all(nodes[1:], generation)
    await world.tick(2)
    again = await boot(world, job_id)
    generation = await next_generation(world, again)
    await report_broken(again[0], generation)
    await stop_all(again[1:], generation)

    assert (await next_generation(world, again)).checkpoint == saved[0]


async def test_a_node_is_not_heard_on_checkpoints_that_it_was_not_to_load(world: World) -> None:
    job_id, nodes, saved = await train_and_stop(world, 40, 60)
    generation = await next_generation(world, nodes)
    await world.store.delete(job_id, f"{saved[0].path}/{SHARDS[0]}")
    broken = BrokenCheckpoint(path=saved[0].path, file=SHARDS[0], reason="is gone")
    await say_all(nodes, NodePhase.STOPPED, generation.number, broken=broken)

    assert (await next_generation(world, nodes)).checkpoint == saved[-1]
    assert (await head_of(world, job_id)).checkpoints == tuple(saved)


async def test_a_service_that_dies_before_it_takes_head_tells_and_loses_nothing_twice(
    world: World,
) -> None:
    job_id, nodes, saved = await train_and_stop(world, 40, 60)
    first = await next_generation(world, nodes)
    await world.store.delete(job_id, f"{saved[-1].path}/{SHARDS[1]}")
    await report_broken(nodes[1], first)
    await stop_all(nodes[:1], first)
    world.clock.advance(seconds=15)
    async with world.engine.begin() as conn:
        ((claim, row),) = await attempt_rows.claim_due(conn, world.clock(), 10)
    async with world.engine.connect() as conn:
        known = (await doubts.histories(conn, [job_id]))[job_id]
    given = (world.engine, world.store, claim, row, known, world.clock())
    marked = await findings.find_broken_checkpoints(*given)
    before = await head_of(world, job_id)  # here it was killed
    shown = await list_checkpoints(world, job_id)
    second = await next_generation(world, nodes)

    assert marked == frozenset({saved[-1].path})
    assert before.newest == saved[-1]
    assert shown == {40: "recent"}
    assert second.checkpoint == saved[0]
    assert len(await world.events(job_id, "checkpoint.broken")) == 1


async def test_a_broken_one_that_an_older_head_brings_back_is_taken_out_again(world: World) -> None:
    job_id, nodes, saved = await train_and_stop(world, 40, 60)
    first = await next_generation(world, nodes)
    await world.store.delete(job_id, f"{saved[-1].path}/{SHARDS[1]}")
    await report_broken(nodes[1], first)
    await stop_all(nodes[:1], first)
    second = await next_generation(world, nodes)
    restored = Head(generation=second.number, checkpoints=tuple(saved))
    await world.store.write(job_id, HEAD, restored.to_json().encode())
    await stop_all(nodes, second)

    assert (await next_generation(world, nodes)).checkpoint == saved[0]
    assert await list_checkpoints(world, job_id) == {40: "recent"}
    assert len(await world.events(job_id, "checkpoint.broken")) == 1
