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


async def poor(job: ScenarioJob) -> None:
    """Raise the price, use up the project's budget, and raise that unannounced."""
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
    """Set the project's budget as a process that died before it looked at the jobs again."""
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


async def late(job: ScenarioJob) -> None:
    """Let it train past its deadline, about which the user is only notified."""
    job.train(3)
    if "late" not in job.done:
        if job.is_training(step=3):
            job.scenario.world.clock.advance(seconds=_LATE.total_seconds())
            job.done.add("late")
        return
    job.waited += 1
    if job.waited > 8:
        job.finish()


async def stored(job: ScenarioJob) -> None:
    """Archive its model; two days later its file and what was left uncommitted are deleted."""
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
    """Leave an upload as a process that died between the blob and its row."""
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
    """Archive the model; Blob cannot be reached at the first try."""
    path = f"/v1/fine_tuning/jobs/{job.job_id}/model/tier"
    answer = await job.send_request("POST", path, json={"tier": "archive"})
    if answer is not None and answer.status_code == 200:
        job.done.add("archive")
        job.scenario.replicas.now.hook.cut.add("blob")


async def _forget_the_file(job: ScenarioJob) -> None:
    job.scenario.replicas.now.hook.cut.clear()
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
    """Note when nothing is left that is not needed."""
    leftovers = await job.scenario.world.store.list_blobs(job.job_id, LEFT_BEHIND)
    leftovers += await job.scenario.world.store.list_blobs(CONTAINER, GHOST)
    if not leftovers:
        job.done.add("clean")


_BLOB = ("tiers", "storage", "uploads", "checkpoints", "pruning", "access")
PLAYS = {
    "poor": Play(poor, chatty=True, beside=("prices", "budgets")),
    "late": Play(late, asks=_deadline, chatty=True),
    "stored": Play(stored, beside=_BLOB, until=frozenset({"clean"})),
}
