"""Garbage of saves that were never committed goes, once per generation and for good at the end."""

import json
from datetime import timedelta

import pytest
from sqlalchemy import select

from service.db.schema import tables
from service.db.storage import retention
from service.reconciler.sweeps.retention import CLOCK_SKEW, GRACE, PAGE_SIZE, CheckpointSweep
from tests.integration.db.rows import add, add_attempt, add_job
from tests.integration.db.rows import checkpoint as entry
from tests.world import World
from trainer.contract import (
    HEAD,
    MANIFEST,
    RUN_SPEC,
    Committed,
    Head,
    Retention,
    RunSpec,
    StaleGeneration,
)

DAY = GRACE.total_seconds()


@pytest.fixture
def sweep(world: World) -> CheckpointSweep:
    world.store.now = world.clock
    return CheckpointSweep(engine=world.engine, store=world.store, now=world.clock)


async def add_training_job(world: World, job_id: str = "job") -> None:
    """Add a job that trains, with an empty HEAD."""
    async with world.engine.begin() as conn:
        await add_job(conn, world.clock(), id=job_id, state="running")
        await add_attempt(conn, world.clock(), id=f"att-{job_id}", job_id=job_id)
    await world.store.create_container(job_id)
    await world.store.write(job_id, HEAD, Head(generation=0).to_json().encode())


async def open_generation(
    world: World, number: int, loaded: Committed | None = None, job_id: str = "job"
) -> None:
    """Add the row of a generation, and fence HEAD for it."""
    head = await head_of(world, job_id)
    head_json = head.fenced(number).to_json().encode()
    await world.store.write(job_id, HEAD, head_json)
    content = {"checkpoint": loaded.to_plain() if loaded else None}
    async with world.engine.begin() as conn:
        await add(
            conn,
            tables.generations,
            job_id=job_id,
            number=number,
            attempt_id=f"att-{job_id}",
            content=content,
            opened_at=world.clock(),
        )


async def save_files(world: World, path: str, job_id: str = "job") -> None:
    for name in ("rank-00000.safetensors", "rank-00001.safetensors", MANIFEST):
        await world.store.write(job_id, f"{path}/{name}", b"12345")


async def end_job(world: World) -> None:
    async with world.engine.begin() as conn:
        values = {"state": "cancelled", "finished_at": world.clock()}
        await conn.execute(tables.jobs.update().where(tables.jobs.c.id == "job").values(values))


async def head_of(world: World, job_id: str = "job") -> Head:
    data, _ = await world.store.read(job_id, HEAD)
    return Head.from_dict(json.loads(data))


async def folders(world: World, job_id: str = "job") -> set[str]:
    blobs = await world.store.list_blobs(job_id)
    return {b.name.rpartition("/")[0] for b in blobs if "/" in b.name}


async def collected_generation(world: World) -> int:
    async with world.engine.connect() as conn:
        query = select(tables.jobs.c.collected_generation).where(tables.jobs.c.id == "job")
        return int((await conn.execute(query)).scalar_one())


async def test_what_an_older_generation_did_not_commit_is_deleted_after_a_day_and_counted(
    world: World, sweep: CheckpointSweep, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await add_training_job(world)
    await open_generation(world, 1)
    await save_files(world, "checkpoints/step-00000010-torn")
    await save_files(world, "models/step-00000010-torn")
    world.clock.advance(seconds=2 * CLOCK_SKEW.total_seconds())
    await open_generation(world, 2)
    await save_files(world, "checkpoints/step-00000020-live")
    before = await sweep.run_once()
    world.clock.advance(seconds=DAY + 1)

    assert before == 0
    assert await sweep.run_once() == 30
    assert await folders(world) == {"checkpoints/step-00000020-live"}
    assert await collected_generation(world) == 2
    assert [vars(r)["bytes"] for r in caplog.records if r.msg == "checkpoints.collected"] == [30]
    assert await sweep.run_once() == 0


async def test_what_head_names_and_what_the_newest_generation_loads_stays(
    world: World, sweep: CheckpointSweep
) -> None:
    named, loaded = entry(10), entry(9)
    named = Committed(**vars(named) | {"path": "checkpoints/step-00000010-named"})
    loaded = Committed(**vars(loaded) | {"path": "checkpoints/step-00000009-loaded"})
    await add_training_job(world)
    for entry_ in (named, loaded):
        await save_files(world, entry_.path)
    head = Head(generation=1, checkpoints=(named,)).to_json().encode()
    await world.store.write("job", HEAD, head)
    await open_generation(world, 1)
    world.clock.advance(seconds=2 * CLOCK_SKEW.total_seconds())
    await open_generation(world, 2, loaded)
    world.clock.advance(seconds=DAY + 1)

    assert await sweep.run_once() == 0
    assert await folders(world) == {named.path, loaded.path}


async def test_a_model_stays_though_a_node_made_head_forget_it(
    world: World, sweep: CheckpointSweep
) -> None:
    model = "models/step-00000010-committed"
    await add_training_job(world)
    await open_generation(world, 1)
    for path in (model, "models/step-00000010-torn"):
        await save_files(world, path)
    await end_job(world)
    async with world.engine.begin() as conn:
        await conn.execute(tables.jobs.update().values(result={"path": model}))
    world.clock.advance(seconds=DAY + 1)

    assert await sweep.run_once() == 15
    assert await folders(world) == {model}


async def test_after_the_end_of_a_job_all_that_head_does_not_name_is_deleted_and_commits_are_fenced(
    world: World, sweep: CheckpointSweep
) -> None:
    await add_training_job(world)
    await open_generation(world, 1)
    await save_files(world, "checkpoints/step-00000010-last")
    await end_job(world)
    first = await sweep.run_once()
    world.clock.advance(seconds=60)
    await save_files(world, "checkpoints/step-00000020-late")  # by a machine that was cut off
    world.clock.advance(seconds=DAY - 30)
    second = await sweep.run_once()
    remaining = await folders(world)
    world.clock.advance(seconds=60)
    third_count = await sweep.run_once()

    assert (first, second, third_count) == (0, 15, 15)
    assert remaining == {"checkpoints/step-00000020-late"}
    assert await folders(world) == set()
    assert (await head_of(world)).generation == 2
    assert await collected_generation(world) == retention.ALL
    assert await sweep.run_once() == 0


@pytest.mark.parametrize("ahead", [1, 3])
async def test_after_a_restore_garbage_of_a_finished_job_goes_and_late_commits_are_refused(
    world: World, sweep: CheckpointSweep, ahead: int
) -> None:
    """HEAD has had generations of which the database does not know."""
    await add_training_job(world)
    await open_generation(world, 1)
    fenced_head = (await head_of(world)).fenced(1 + ahead)
    checkpoint = entry(10, generation=1 + ahead)
    lives = fenced_head.with_checkpoint(checkpoint)
    await world.store.write("job", HEAD, lives.to_json().encode())
    await save_files(world, checkpoint.path)
    await save_files(world, "checkpoints/step-00000020-torn")
    await end_job(world)
    world.clock.advance(seconds=DAY + 1)

    await sweep.run_once()

    assert await folders(world) == {checkpoint.path}
    with pytest.raises(StaleGeneration):
        (await head_of(world)).with_checkpoint(entry(30, generation=1 + ahead))


async def test_a_job_whose_head_is_gone_is_left_alone_and_holds_up_no_other(
    world: World, sweep: CheckpointSweep, caplog: pytest.LogCaptureFixture
) -> None:
    for job_id in ("job", "other"):
        await add_training_job(world, job_id)
        await open_generation(world, 1, job_id=job_id)
        await save_files(world, "checkpoints/step-00000010-torn", job_id)
    world.clock.advance(seconds=2 * CLOCK_SKEW.total_seconds())
    for job_id in ("job", "other"):
        await open_generation(world, 2, job_id=job_id)
    await world.store.delete("job", HEAD)
    world.clock.advance(seconds=DAY + 1)

    assert await sweep.run_once() == 15
    assert await folders(world) == {"checkpoints/step-00000010-torn"}
    assert "is gone" in " ".join(str(vars(r).get("cause")) for r in caplog.records)
    assert await collected_generation(world) == 0


async def test_jobs_come_in_pages_and_none_is_left_out(world: World) -> None:
    for number in range(3):
        await add_training_job(world, f"job-{number}")
        for generation in (1, 2):
            await open_generation(world, generation, job_id=f"job-{number}")
    before = world.clock.advance(seconds=DAY) + timedelta(seconds=1)
    pages, after = [], ""
    async with world.engine.connect() as conn:
        while page := await retention.due(conn, before=before, after=after, limit=2):
            pages.append([d.job_id for d in page])
            after = page[-1].job_id

    assert pages == [["job-0", "job-1"], ["job-2"]]
    assert PAGE_SIZE > 2


async def test_nodes_receive_the_retention_that_the_job_asks_for(world: World) -> None:
    policy = {"keep_checkpoints": 5, "milestone_every_steps": 4}
    job_id = (await world.submit(training=policy))["id"]
    await world.tick(2)
    spec, _ = await world.store.read(job_id, RUN_SPEC)

    assert RunSpec.from_json(spec).retention == Retention(newest=5, milestone_every=4)
