"""Plays about money, deadlines, and what is stored in Blob."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from service.db.files import uploads
from service.db.files.files import CONTAINER
from service.db.files.uploads import Upload
from service.db.money import budgets
from service.db.projects import keys
from service.domain.cloud.fleet import Price
from service.domain.states import JobState
from service.domain.storage.access_tiers import AccessTier
from tests.scenario.plays.play import Play
from tests.world import PRICE

if TYPE_CHECKING:
    from tests.scenario.job import ScenarioJob

GHOST = "file-of-a-ghost"
LEFT_BEHIND = "checkpoints/step-00000099-deadbeef/rank-00000.safetensors"
_DEADLINE = timedelta(hours=4)
_LATE = _DEADLINE + timedelta(minutes=1)
_DEARER = Price(hourly=PRICE.hourly + 1, on_demand_hourly=PRICE.on_demand_hourly)


async def budget_exhausted(job: ScenarioJob) -> None:
    """Raise the price, exhaust the project's budget, and raise the budget without a notice."""
    job.train(3)
    if "dearer" not in job.done:
        if job.is_training(step=3):
            job.scenario.prices.now = _DEARER
            job.done.add("dearer")
    elif "poor" not in job.done:
        await _budget(job, Decimal("0.05"))
        job.done.add("poor")
    elif "rich" not in job.done:
        if job.state is JobState.PAUSED and job.have_all_ended():
            if "change" not in job.done:
                await _change(job, {"budget": {"amount": "900"}})
                return
            await _budget(job, Decimal(1000))
            job.done.add("rich")
    else:
        job.finish()


async def _budget(job: ScenarioJob, cap: Decimal) -> None:
    """Set the project's budget like a process that died before it checked the jobs again."""
    async with job.scenario.world.engine.begin() as conn:
        project = await keys.find_project(conn, "tests")
        assert project is not None
        now = job.scenario.world.clock()
        await budgets.set_project(conn, project, cap, now - timedelta(days=1), now)


async def _change(job: ScenarioJob, infrastructure: dict[str, Any]) -> None:
    path = f"/v1/fine_tuning/jobs/{job.job_id}"
    answer = await job.send_request("PATCH", path, json={"infrastructure": infrastructure})
    if answer is not None and answer.status_code == 200:
        job.done.add("change")


def _deadline(job: ScenarioJob) -> dict[str, Any]:
    until = int((job.born + _DEADLINE).timestamp())
    limits = {"nodes": 2, "deadline": until, "on_deadline_risk": "notify"}
    return {"infrastructure": limits, "training": {"checkpoint_seconds": 3600}}


async def deadline_missed(job: ScenarioJob) -> None:
    """Train past the deadline, which only notifies the user."""
    job.train(3)
    if "late" not in job.done:
        if job.is_training(step=3):
            job.scenario.world.clock.advance(seconds=_LATE.total_seconds())
            job.done.add("late")
        return
    job.waited += 1
    if job.waited > 8:
        job.finish()


async def archived(job: ScenarioJob) -> None:
    """Archive the model; two days later its file and uncommitted blobs are deleted."""
    if "left" not in job.done and job.is_training(step=1):
        await job.scenario.world.store.write(job.job_id, LEFT_BEHIND, b"never committed")
        await _half_an_upload(job)
        job.done.add("left")
    if "left" in job.done:
        job.finish()
    if job.state is not JobState.SUCCEEDED or not job.have_all_ended():
        return
    if "archive" not in job.done:
        await _archive(job)
    elif "file" not in job.done:
        await _forget_the_file(job)
    elif "slept" not in job.done:
        await _when_archived(job)
    else:
        await _when_clean(job)


async def _half_an_upload(job: ScenarioJob) -> None:
    """Leave an upload like a process that died between the blob and its row."""
    now = job.scenario.world.clock()
    async with job.scenario.world.engine.begin() as conn:
        project = await keys.find_project(conn, "tests")
        assert project is not None
        await uploads.add(
            conn,
            Upload(
                id=GHOST,
                project_id=project,
                filename="ghost.jsonl",
                purpose="fine-tune",
                expected_bytes=None,
                received_bytes=0,
                examples=0,
                created_at=now,
                touched_at=now,
            ),
        )
    await job.scenario.world.store.write(CONTAINER, GHOST, b"{}")


async def _archive(job: ScenarioJob) -> None:
    """Archive the model; the first call of Blob fails."""
    path = f"/v1/fine_tuning/jobs/{job.job_id}/model/tier"
    answer = await job.send_request("POST", path, json={"tier": "archive"})
    if answer is not None and answer.status_code == 200:
        job.done.add("archive")
        job.scenario.replicas.now.hook.unreachable.add("blob")


async def _forget_the_file(job: ScenarioJob) -> None:
    job.scenario.replicas.now.hook.unreachable.clear()
    answer = await job.send_request("DELETE", f"/v1/files/{job.file_id}")
    if answer is not None and answer.status_code == 200:
        job.done.add("file")


async def _when_archived(job: ScenarioJob) -> None:
    blobs = await job.scenario.world.store.list_stored(job.job_id, "models/")
    if any(blob.tier is AccessTier.ARCHIVE for blob in blobs):
        job.waited += 1
    if job.waited > 3:
        job.scenario.world.clock.advance(days=2)
        job.done.add("slept")


async def _when_clean(job: ScenarioJob) -> None:
    """Record when nothing unneeded is left."""
    leftovers = await job.scenario.world.store.list_blobs(job.job_id, LEFT_BEHIND)
    leftovers += await job.scenario.world.store.list_blobs(CONTAINER, GHOST)
    if not leftovers:
        job.done.add("clean")


_BLOB = ("tiers", "storage", "uploads", "checkpoints", "pruning", "access")
PLAYS = {
    "budget exhausted": Play(budget_exhausted, chatty=True, periodic_work=("prices", "budgets")),
    "deadline missed": Play(deadline_missed, request=_deadline, chatty=True),
    "archived": Play(archived, periodic_work=_BLOB, until=frozenset({"clean"})),
}
