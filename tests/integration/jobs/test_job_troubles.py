"""Jobs in trouble that is not their own: outages, lost blobs, nodes that never come."""

import logging
from dataclasses import dataclass, replace

import pytest
from sqlalchemy import text, update
from sqlalchemy.ext.asyncio import AsyncEngine

from service.cloud.provider import Misconfigured
from service.db.schema import tables
from service.domain.cloud.fleet import Offering, Price
from service.domain.money.storage_cost import StoragePrices
from service.domain.storage.access_tiers import StorageAccount
from service.pricing.source import PricesUnavailable
from service.storage.fake import MemoryStore
from service.storage.store import BlobNotFound
from tests.integration.stored_jobs import put_files
from tests.nodes.scripted_node import (
    boot,
    commit,
    committed,
    evicted,
    metrics,
    say_all,
    start_training,
    train,
)
from tests.world import SPOT, World
from trainer.contract import HEAD, MEASURED, RUN_SPEC, NodePhase


async def test_after_an_outage_of_the_service_no_node_counts_as_silent(world: World) -> None:
    job, nodes, number = await start_training(world)
    world.clock.advance(minutes=8)  # nobody could be heard
    await world.tick(1, seconds=1)
    await say_all(nodes, NodePhase.RUNNING, number, step=900)
    await world.tick(3)

    assert [a["state"] for a in await world.attempts_of(job)] == ["running"]


async def test_nodes_that_cannot_be_heard_but_still_commit_are_left_alone(world: World) -> None:
    job, _, number = await start_training(world)
    for step in range(2, 6):  # 16 minutes in all, each silence shorter than five
        await commit(world, job, committed(step, number))
        await world.tick(16)
    alive = [a["state"] for a in await world.attempts_of(job)]
    await world.tick(30)  # and now nothing comes any more

    assert alive == ["running"]
    assert (await world.attempts_of(job))[0]["outcome"] == "unresponsive"


@dataclass(kw_only=True)
class Freezing(MemoryStore):
    """Whoever makes a container stands still until another replica has the job."""

    engine: AsyncEngine

    async def create_container(self, container: str) -> None:
        await super().create_container(container)
        async with self.engine.begin() as conn:
            await conn.execute(update(tables.jobs).values(lease_token="another"))


async def test_a_worker_that_lost_its_job_during_preparation_writes_no_run_spec(
    world: World,
) -> None:
    frozen = Freezing(**vars(world.store), engine=world.engine)
    job = await world.submit()
    prepare = replace(world.jobs.preparation, store=frozen)
    await replace(world.jobs, preparation=prepare).run_once()

    with pytest.raises(BlobNotFound):
        await frozen.read(job["id"], RUN_SPEC)


async def test_starts_that_all_come_to_nothing_pause_a_job_that_has_trained(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    job = await world.submit()
    nodes = await boot(world, job["id"])
    for _ in range(10):
        number = await train(world, nodes, step=1)
        await say_all(nodes, NodePhase.STOPPED, number)
        await world.tick(5)
    paused = await world.job(job["id"])
    await world.call("POST", f"/v1/fine_tuning/jobs/{job['id']}/resume")
    resumed = await world.job(job["id"])
    await train(world, await boot(world, job["id"]), step=2)

    assert (paused["phase"], paused["status_reason"]["code"]) == ("paused", "never_saved")
    assert paused["status_reason"]["message"].startswith("10 starts in a row without a new")
    assert logging.ERROR in [r.levelno for r in caplog.records if r.msg == "job.paused"]
    assert resumed["status_reason"]["code"] == "resuming"
    assert (await world.job(job["id"]))["status"] == "running"


async def test_starts_that_all_come_to_nothing_fail_a_job_that_has_never_trained(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    job = await world.submit()
    nodes = await boot(world, job["id"])
    for number in range(1, 11):
        await world.tick(5)
        await say_all(nodes, NodePhase.STOPPED, number)
    await world.tick(5)

    assert "10 starts in a row" in (await world.job(job["id"]))["error"]["message"]
    assert [r.levelname for r in caplog.records if r.msg == "job.failed"] == ["ERROR"]


async def test_attempts_that_never_train_fail_the_job_with_what_to_check(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    job = await world.submit()
    await world.tick(400, seconds=25)  # no node ever registers

    failed = await world.job(job["id"])

    assert failed["status"] == "failed"
    assert "REKINDLE_PUBLIC_URL" in failed["error"]["message"]
    assert [a["outcome"] for a in await world.attempts_of(job["id"])] == ["unresponsive"] * 3
    assert await world.cloud.list_owned() == []
    (line,) = [vars(r) for r in caplog.records if r.getMessage() == "job.failed"]
    assert (line["levelname"], line["job"]) == ("ERROR", job["id"])  # the operator's matter
    assert "REKINDLE_TRAINER_IMAGE" in line["cause"]


async def never_trains_again(world: World) -> tuple[str, int]:
    """Return a paused job whose new machines never registered, and its first generation."""
    job, _, number = await start_training(world, step=3)
    checkpoint = committed(2, number)
    await put_files(world.store, job, checkpoint.path)
    await commit(world, job, checkpoint)
    for _ in range(50):
        await world.tick(20, seconds=25)
        if (await world.job(job))["phase"] == "paused":
            break
    return job, number


async def test_a_trained_job_is_paused_by_machines_that_never_train_and_goes_on_when_resumed(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """After the resume a refusal of Azure does not count as one more machine that never trains."""
    job_id, number = await never_trains_again(world)
    paused = await world.job(job_id)
    attempt_count = len(await world.attempts_of(job_id))
    await world.tick(20, seconds=25)
    count_after = len(await world.attempts_of(job_id))

    world.cloud.sold_out.add(SPOT)
    response = await world.call("POST", f"/v1/fine_tuning/jobs/{job_id}/resume")
    await world.tick(8)
    pending_job, attempts = await world.job(job_id), await world.attempts_of(job_id)
    world.cloud.sold_out.clear()
    next_number = await train(world, await boot(world, job_id), step=3)

    assert (paused["status"], paused["phase"]) == ("queued", "paused")
    assert paused["status_reason"]["code"] == "never_trained"
    assert "Once resumed, it will go on from step 2." in paused["status_reason"]["message"]
    assert [r.levelname for r in caplog.records if r.message == "job.paused"] == ["ERROR"]
    assert attempt_count == count_after == 4
    assert response.status_code == 200
    assert pending_job["phase"] != "paused"
    assert "no_capacity" in {attempt["outcome"] for attempt in attempts}
    assert next_number > number
    assert (await world.job(job_id))["status"] == "running"


async def test_a_job_whose_steps_take_an_hour_is_given_the_time_for_its_first(world: World) -> None:
    job = await world.submit()
    longer = "jsonb_set(plan, '{options,0,seconds_per_step_p90}', '3600')"
    async with world.engine.begin() as conn:
        await conn.execute(text(f"update jobs set plan = {longer}"))
    nodes = await boot(world, job["id"])
    number = await train(world, nodes, step=0)
    for _ in range(30):
        world.clock.advance(minutes=4)
        await say_all(nodes, NodePhase.RUNNING, number, step=0)
        await world.tick()
    (first,) = await world.attempts_of(job["id"])

    assert first["state"] == "starting"
    assert first["outcome"] is None


async def test_a_job_whose_head_is_lost_can_be_cancelled_and_says_what_is_wrong(
    world: World,
) -> None:
    job, _, _ = await start_training(world)
    for number in range(1, 4):
        await world.store.write(job, HEAD, b"garbage" * number)
        await world.tick(2)
    codes = await world.event_codes(job)
    await world.call("POST", f"/v1/fine_tuning/jobs/{job}/cancel")
    await world.tick(40)

    assert codes.count("attempt.needs_help") == 1
    assert (await world.job(job))["status"] == "cancelled"
    assert await world.cloud.list_owned() == []


async def test_a_cancel_does_not_wait_for_a_cloud_that_refuses_us(world: World) -> None:
    job = await world.submit()
    await world.tick(2)
    world.cloud.fail_next = [Misconfigured("role is missing: grant it") for _ in range(20)]
    await world.tick(2, seconds=61)
    await world.call("POST", f"/v1/fine_tuning/jobs/{job['id']}/cancel")
    await world.tick(2, seconds=61)

    assert (await world.job(job["id"]))["status"] == "cancelled"


async def test_a_recovery_does_not_wait_for_the_price_list(world: World) -> None:
    job, *_ = await start_training(world)
    world.jobs = replace(world.jobs, prices=NoPrices())
    await evicted(world, job)
    await world.tick(6)

    assert len(await world.attempts_of(job)) == 2


class NoPrices:
    """A price list that is down."""

    async def prices(self, offerings: list[Offering]) -> dict[Offering, Price]:
        raise PricesUnavailable(f"429 for {len(offerings)} offerings")

    async def storage(self, account: StorageAccount) -> StoragePrices:
        raise PricesUnavailable(f"429 for {account}")

    async def close(self) -> None:
        """Nothing to close."""


async def test_steps_that_a_machine_committed_and_had_no_time_to_tell_of_are_measured_all_the_same(
    world: World,
) -> None:
    job, _, number = await start_training(world)
    entry = committed(3, number)
    lines = "\n".join(metrics(step).to_json() for step in (2, 3))
    await world.store.write(job, f"{entry.path}/{MEASURED}", lines.encode())
    await commit(world, job, entry)
    await evicted(world, job)  # and with the machines all that they had not said
    await world.tick(2)
    await train(world, await boot(world, job), step=4)

    series = await world.call("GET", f"/v1/fine_tuning/jobs/{job}/metrics")
    assert [row["step"] for row in series.json()["data"]] == [1, 2, 3, 4]
