"""How far a job is where its nodes' reports ended before it did, as in a cut network."""

from dataclasses import replace
from typing import Any

import pytest

from tests.integration.stored_jobs import put_files
from tests.nodes.scripted_node import commit, committed, metrics, start_training
from tests.world import World
from trainer.contract import MEASURED, Committed

STEPS = 60  # of the whole job


async def cut_job_off(world: World, kind: str, *, with_metrics: bool, step: int = STEPS) -> str:
    """Submit a job that reports step 1 only and commits ``step``, with its metrics or without."""
    job, _, number = await start_training(world)
    await commit_unheard(world, job, committed(step, number, kind), with_metrics=with_metrics)
    return job


async def commit_unheard(world: World, job: str, entry: Committed, *, with_metrics: bool) -> None:
    entry = replace(entry, valid_loss=0.5)
    if with_metrics:
        steps = [replace(metrics(s, loss=1 / s), valid_loss=0.5) for s in range(2, entry.step + 1)]
        lines = "\n".join(m.to_json() for m in steps)
        await world.store.write(job, f"{entry.path}/{MEASURED}", lines.encode())
    await put_files(world.store, job, entry.path)
    await commit(world, job, entry)


async def listed_job(world: World, job: str) -> dict[str, Any]:
    jobs = (await world.call("GET", "/v1/fine_tuning/jobs")).json()["data"]
    return dict(next(job_view for job_view in jobs if job_view["id"] == job))


async def test_a_finished_job_shows_what_its_last_steps_measured_though_no_report_came(
    world: World,
) -> None:
    job = await cut_job_off(world, "final", with_metrics=True)
    await world.tick(4)

    view = await world.job(job)

    assert view["status"] == "succeeded"
    progress = view["progress"]
    assert (progress["step"], progress["percent"]) == (STEPS, 100.0)
    assert (progress["loss"], progress["valid_loss"]) == (1 / STEPS, 0.5)
    assert view["trained_tokens"] == STEPS * 100
    assert (await listed_job(world, job))["progress"] == {
        "step": STEPS,
        "total_steps": STEPS,
        "percent": 100.0,
    }


@pytest.mark.parametrize(
    ("verb", "state", "loss"), [("cancel", "cancelled", None), ("pause", "queued", 2.0)]
)
async def test_a_stopped_job_is_as_far_as_its_newest_checkpoint(
    world: World, verb: str, state: str, loss: float | None
) -> None:
    job = await cut_job_off(world, "stop", with_metrics=False, step=4)
    await world.call("POST", f"/v1/fine_tuning/jobs/{job}/{verb}")
    await world.tick(60)

    view = await world.job(job)

    assert view["status"] == state
    assert view["latest_checkpoint"]["step_number"] == 4
    assert (view["progress"]["step"], view["progress"]["loss"]) == (4, loss)
    assert view["estimated_finish"] is None
    assert "step 4" in view["status_reason"]["message"]
    assert (await listed_job(world, job))["progress"]["step"] == 4
