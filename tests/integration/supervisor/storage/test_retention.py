"""What is left in HEAD and in Blob after many commits, and after a sweep; on a real Azurite."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from service.db.storage.retention import RetentionTask
from service.reconciler.sweeps.retention import CLOCK_SKEW, GRACE, collect_garbage
from service.storage.azure import AzureBlobStore
from tests.azurite import Azurite
from tests.nodes.standin_trainer import save
from tests.nodes.supervised import ALONE, QUICK, Job, make_job
from tests.waiting import until
from trainer.contract import (
    MANIFEST,
    Committed,
    Generation,
    checkpoint_path,
)
from trainer.rundir import RunDir
from trainer.supervisor.blob.blocks import BlockClient
from trainer.supervisor.blob.container import BlobAccess, BlobUnavailableError, JobContainer
from trainer.supervisor.clock import NodeClock
from trainer.supervisor.control.launch import NodeWorld
from trainer.supervisor.control.stop_requests import StopRequest, StopRequests
from trainer.supervisor.report.heartbeat_reports import HeartbeatReports
from trainer.supervisor.upload.commit import Committer
from trainer.supervisor.upload.outbox import Outbox
from trainer.supervisor.upload.uploads import SaveUploads

T = TypeVar("T")
LOSSES = {10: 0.9, 20: 0.1, 30: 0.5, 40: 0.4, 50: 0.3}


@pytest.fixture
def job(azurite: Azurite) -> Iterator[Job]:
    """Yield a job of generation 1."""
    with azurite.container("job") as client, azurite.container("inputs") as inputs:
        made = make_job(azurite, client, inputs)
        made.write_head(made.head().fenced(1))
        yield made


@pytest.fixture
def access() -> Iterator[BlobAccess]:
    """Of one supervisor."""
    made = BlobAccess()
    yield made
    made.close()


async def test_a_job_keeps_what_its_run_spec_says_and_what_the_generation_started_from(
    job: Job, access: BlobAccess, tmp_path: Path
) -> None:
    job.ask(keep_checkpoints=1, milestone_every_steps=25)
    container = JobContainer(access, job.grants.job)
    first = await _committed(container, RunDir(tmp_path), ALONE, 10)
    later = replace(ALONE, checkpoint=first)
    for step in (20, 30, 40, 50):
        await _committed(container, RunDir(tmp_path), later, step)

    head = job.head()
    kept = {c.step: head.kept_as(c) for c in head.checkpoints}
    assert kept == {10: "recent", 20: "best", 30: "milestone", 50: "milestone"}
    assert f"{first.path}/manifest.json" in job.names("checkpoints/")
    assert job.names(checkpoint_path(40, "g1")) == []


class Dying(JobContainer):
    """A container that takes one deletion and no more."""

    deleted = ""

    async def delete(self, name: str) -> None:
        """Delete as asked, if it is the first time."""
        if self.deleted:
            raise BlobUnavailableError("no answer")
        self.deleted = name
        await super().delete(name)


async def test_a_checkpoint_that_is_half_deleted_has_no_manifest(
    job: Job, access: BlobAccess, tmp_path: Path
) -> None:
    container = Dying(access, job.grants.job)
    entry = await _committed(container, RunDir(tmp_path), ALONE, 10)
    committer = Committer(container, ALONE, NodeClock())
    committer.dropped.append(entry.path)
    await committer.delete_dropped()

    assert container.deleted == f"{entry.path}/{MANIFEST}"
    assert f"{entry.path}/rank-00000.bin" in job.names("checkpoints/")


async def _committed(
    container: JobContainer, folder: RunDir, generation: Generation, step: int
) -> Committed:
    """Save, send, commit, and delete what HEAD has let go of."""
    committer = Committer(container, generation, NodeClock(), valid_loss=LOSSES.get)
    save(folder, generation, 0, step, checkpoint_path(step, "g1"), 1, "periodic")
    while sent := await Outbox(container, folder, range(1)).send_next():
        committer.expect_commit(sent)
    (entry,) = await committer.commit_complete()
    await committer.delete_dropped()
    return entry


async def test_what_a_save_has_left_is_deleted_and_what_head_names_is_not(
    azurite: Azurite, job: Job, access: BlobAccess, tmp_path: Path
) -> None:
    store = AzureBlobStore(azurite.connection_string)
    container, folder = JobContainer(access, job.grants.job), RunDir(tmp_path)
    kept = await _committed(container, folder, ALONE, 10)
    save(folder, ALONE, 0, 20, checkpoint_path(20, "torn"), 2, "periodic")
    torn = await Outbox(container, folder, range(1)).send_next()
    job.write_head(job.head().fenced(2))
    written = job.container.get_blob_client(f"{kept.path}/manifest.json").get_blob_properties()
    next_opened = written.last_modified + 2 * CLOCK_SKEW
    due = RetentionTask(
        job_id=job.container.container_name,
        is_over=False,
        newest=2,
        generation=2,
        opened_at=next_opened,
        loaded="",
    )
    bytes_left = sum(b.size for b in job.container.list_blobs(checkpoint_path(20, "torn")))
    early = await collect_garbage(store, due, next_opened)
    freed = await collect_garbage(store, due, next_opened + GRACE)
    await store.close()

    assert torn is not None
    assert early.freed_bytes == 0
    assert freed.freed_bytes == bytes_left > 0
    assert job.names(torn.path) == []
    assert len(job.names(kept.path)) == 3


class Overloaded(JobContainer):
    """Takes everything at once, but has not answered a delete yet."""

    def __init__(self, access: BlobAccess, url: str) -> None:
        super().__init__(access, url)
        self.begun: list[str] = []
        self.given_up: list[str] = []

    async def delete(self, name: str) -> None:
        """Never comes to it."""
        self.begun.append(name)
        try:
            await asyncio.Event().wait()
        finally:
            self.given_up.append(name)


async def test_deleting_old_checkpoints_holds_up_no_save_and_no_stop(
    job: Job, access: BlobAccess, tmp_path: Path
) -> None:
    job.ask(keep_checkpoints=1)
    folder, requests = RunDir(tmp_path), StopRequests(QUICK, NodeClock())
    container = Overloaded(access, job.grants.job)
    working = asyncio.create_task(_uploads(container, folder).run_to_end(requests))
    for step in (10, 20, 30, 40):
        save(folder, ALONE, 0, step, checkpoint_path(step, "g1"), 1, "periodic")
        await _names(job, step)
    at_once = len(container.begun) - len(container.given_up)
    requests.request(StopRequest.SAVE)
    await until(_looked(lambda: container.given_up), bool)
    save(folder, ALONE, 0, 50, checkpoint_path(50, "g1"), 1, "stop")
    requests.trainer_ended(ended_well=True)
    await asyncio.wait_for(working, 30.0)

    assert at_once == 1
    assert [c.step for c in job.head().checkpoints] == [50]
    assert len(container.begun) == 1  # the rest is left to the sweep


async def test_checkpoints_that_head_lets_go_of_are_deleted_while_it_trains(
    job: Job, access: BlobAccess, tmp_path: Path
) -> None:
    job.ask(keep_checkpoints=1)
    folder, requests = RunDir(tmp_path), StopRequests(QUICK, NodeClock())
    container = JobContainer(access, job.grants.job)
    working = asyncio.create_task(_uploads(container, folder).run_to_end(requests))
    for step in (10, 20, 30):
        save(folder, ALONE, 0, step, checkpoint_path(step, "g1"), 1, "periodic")
        await _names(job, step)
    left = _looked(lambda: {name.split("/")[1] for name in job.names("checkpoints/")})
    await until(left, lambda folders: folders == {checkpoint_path(30, "g1").split("/")[1]})
    requests.trainer_ended(ended_well=True)
    await asyncio.wait_for(working, 30.0)


class Stalled(BlockClient):
    """Never comes to the end of the second save."""

    def __init__(self) -> None:
        super().__init__(16)
        self.over = threading.Event()

    def put_block(self, url: str, block_id: str, data: memoryview) -> int:
        """As it is, but for that one."""
        if "step-00000020" in url:
            self.over.wait(60.0)
        return super().put_block(url, block_id, data)


async def test_a_save_is_committed_before_the_one_behind_it_is_sent(
    job: Job, access: BlobAccess, tmp_path: Path
) -> None:
    folder, requests = RunDir(tmp_path), StopRequests(QUICK, NodeClock())
    access.blocks = stalled = Stalled()
    for step, kind in ((10, "periodic"), (20, "stop")):
        save(folder, ALONE, 0, step, checkpoint_path(step, "g1"), 1, kind)
    uploads = _uploads(JobContainer(access, job.grants.job), folder)
    working = asyncio.create_task(uploads.run_to_end(requests))
    await _names(job, 10)
    # As fast as the first one went, the second would be there by now.
    await until(_looked(lambda: uploads.pending_bytes), lambda left: left == 0)
    stalled.over.set()
    requests.trainer_ended(ended_well=True)
    await asyncio.wait_for(working, 30.0)

    assert [c.step for c in job.head().checkpoints] == [10, 20]


async def _names(job: Job, step: int) -> None:
    """Wait until HEAD names the checkpoint of this step."""
    steps = _looked(lambda: [c.step for c in job.head().checkpoints])
    await until(steps, lambda named: step in named)


def _looked(at: Callable[[], T]) -> Callable[[], Awaitable[T]]:
    """Wrap a function into a coroutine function that can be awaited repeatedly."""

    async def look() -> T:
        return at()

    return look


def _uploads(container: JobContainer, folder: RunDir) -> SaveUploads:
    """Of a node that is alone in its generation."""
    world = NodeWorld(
        generation=ALONE,
        member=ALONE.members[0],
        folder=folder,
        logs=folder.root / "logs",
    )
    return SaveUploads(
        world, container, HeartbeatReports(), QUICK, NodeClock(), _nothing, lambda _: ()
    )


async def _nothing() -> None:
    """Grants last."""
