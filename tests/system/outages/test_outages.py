"""The whole product while everything around a training job goes away for a while, part by part."""

import pytest

from rekindle.local import faults
from tests.system.product import Product, saved_step

STEPS_AN_EPOCH = 40


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(600)
async def test_a_job_trains_on_through_outages_and_comes_back_when_all_its_machines_go(
    product: Product,
) -> None:
    stack = product.stack
    job_id = await product.submit(epochs=25)
    await product.until(job_id, lambda j: j["latest_checkpoint"] is not None)
    await faults.restart_part(stack, "postgres")
    before = await faults.kill_part(stack, "service")
    await faults.wait_for_restart(stack, "service", before)
    await faults.stop_part(stack, "azurite", 20)
    away = await product.get(f"/fine_tuning/jobs/{job_id}")
    caught_up = await product.until(job_id, lambda j: saved_step(j) > away["progress"]["step"])
    count = len(await product.attempts(job_id))
    machines = await faults.list_machines(stack)
    await faults.kill_supervisor(stack, machines[0])
    await product.until(job_id, lambda j: saved_step(j) > saved_step(caught_up))
    attempts = await product.attempts(job_id)
    await faults.evict_attempt(stack, attempts[0]["id"], notice=False)
    job = await product.finished(job_id)
    tried = await product.attempts(job_id)
    events = (await product.get(f"/fine_tuning/jobs/{job_id}/events?limit=100"))["data"]
    series = (await product.get(f"/fine_tuning/jobs/{job_id}/metrics"))["data"]

    assert count == len(attempts) == 1  # neither outages nor a dead supervisor cost the machines
    assert {"checkpoint.delayed", "checkpoint.caught_up"} <= {e["code"] for e in events}
    assert job["status"] == "succeeded"
    assert [a["outcome"] for a in tried] == ["evicted", "succeeded"]
    assert tried[0]["evicted"] == {"noticed": 0, "unnoticed": 2}
    assert [row["step"] for row in series] == list(range(1, 25 * STEPS_AN_EPOCH + 1))
