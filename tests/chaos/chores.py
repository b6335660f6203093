"""Plays about what is done beside training: money, deadlines, and what lies in Blob."""

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
from tests.chaos.play import Play
from tests.world import PRICE

if TYPE_CHECKING:
    from tests.chaos.life import Life

GHOST = "file-of-a-ghost"
LEFT_BEHIND = "checkpoints/step-00000099-deadbeef/rank-00000.safetensors"
_DEADLINE = timedelta(hours=4)
_LATE = _DEADLINE + timedelta(minutes=1)
_DEARER = Price(hourly=PRICE.hourly + 1, on_demand_hourly=PRICE.on_demand_hourly)


async def poor(life: Life) -> None:
    """Machines get dearer, the project runs out of money, and is given more behind our back."""
    life.hold(3)
    if "dearer" not in life.done:
        if life.training(step=3):
            life.prices.now = _DEARER
            life.done.add("dearer")
    elif "poor" not in life.done:
        await _budget(life, Decimal("0.05"))
        life.done.add("poor")
    elif "rich" not in life.done:
        if life.state is JobState.PAUSED and life.all_ended():
            if "change" not in life.done:
                await _change(life, {"budget": {"amount": "900"}})
                return
            await _budget(life, Decimal(1000))
            life.done.add("rich")
    else:
        life.finish()


async def _budget(life: Life, cap: Decimal) -> None:
    """As of a process that died before it had the project's jobs weighed again."""
    async with life.world.engine.begin() as conn:
        project = await keys.find_project(conn, "tests")
        assert project is not None
        now = life.world.clock()
        await budgets.set_project(conn, project, cap, now - timedelta(days=1), now)


async def _change(life: Life, infrastructure: dict[str, Any]) -> None:
    path = f"/v1/fine_tuning/jobs/{life.job_id}"
    answer = await life.ask("PATCH", path, json={"infrastructure": infrastructure})
    if answer is not None and answer.status_code == 200:
        life.done.add("change")


def _deadline(life: Life) -> dict[str, Any]:
    until = int((life.born + _DEADLINE).timestamp())
    limits = {"nodes": 2, "deadline": until, "on_deadline_risk": "notify"}
    return {"infrastructure": limits, "training": {"checkpoint_seconds": 3600}}


async def late(life: Life) -> None:
    """It trains past its deadline, of which the user only wants to be told."""
    life.hold(3)
    if "late" not in life.done:
        if life.training(step=3):
            life.world.clock.advance(seconds=_LATE.total_seconds())
            life.done.add("late")
        return
    life.waited += 1
    if life.waited > 8:
        life.finish()


async def stored(life: Life) -> None:
    """Its model goes to the archive; two days later its leavings, a dead upload, its file go."""
    if "left" not in life.done and life.training(step=1):
        await life.world.store.write(life.job_id, LEFT_BEHIND, b"never committed")
        await _half_an_upload(life)
        life.done.add("left")
    if "left" in life.done:
        life.finish()
    if life.state is not JobState.SUCCEEDED or not life.all_ended():
        return
    if "archive" not in life.done:
        await _archive(life)
    elif "file" not in life.done:
        await _forget_the_file(life)
    elif "slept" not in life.done:
        await _when_archived(life)
    else:
        await _when_clean(life)


async def _half_an_upload(life: Life) -> None:
    """As of a process that died between the blob and its row."""
    now = life.world.clock()
    async with life.world.engine.begin() as conn:
        project = await keys.find_project(conn, "tests")
        assert project is not None
        await uploads.begin(
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
    await life.world.store.write(CONTAINER, GHOST, b"{}")


async def _archive(life: Life) -> None:
    """Blob cannot be reached when it is first tried."""
    path = f"/v1/fine_tuning/jobs/{life.job_id}/model/tier"
    answer = await life.ask("POST", path, json={"tier": "archive"})
    if answer is not None and answer.status_code == 200:
        life.done.add("archive")
        life.replicas.now.hook.cut.add("blob")


async def _forget_the_file(life: Life) -> None:
    life.replicas.now.hook.cut.clear()
    answer = await life.ask("DELETE", f"/v1/files/{life.file_id}")
    if answer is not None and answer.status_code == 200:
        life.done.add("file")


async def _when_archived(life: Life) -> None:
    found = await life.world.store.list_stored(life.job_id, "models/")
    if any(blob.tier is AccessTier.ARCHIVE for blob in found):
        life.waited += 1
    if life.waited > 3:
        life.world.clock.advance(days=2)
        life.done.add("slept")


async def _when_clean(life: Life) -> None:
    """All that nobody needs is gone."""
    left = await life.world.store.list_blobs(life.job_id, LEFT_BEHIND)
    left += await life.world.store.list_blobs(CONTAINER, GHOST)
    if not left:
        life.done.add("clean")


_BLOB = ("tiers", "storage", "uploads", "checkpoints", "pruning", "access")
PLAYS = {
    "poor": Play(poor, chatty=True, beside=("prices", "budgets")),
    "late": Play(late, asks=_deadline, chatty=True),
    "stored": Play(stored, beside=_BLOB, until=frozenset({"clean"})),
}
