"""What is left in HEAD and in Blob after many commits, and after a sweep; on a real Azurite."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.azurite import Azurite
from tests.nodes.standin_trainer import save
from tests.nodes.supervised import ALONE, QUICK, Job, make_job
from tests.waiting import until_true
from trainer.contract import MANIFEST, Committed, Generation, checkpoint_path
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

LOSSES = {10: 0.9, 20: 0.1, 30: 0.5, 40: 0.4, 50: 0.3}


@pytest.fixture
def job(azurite: Azurite) -> Iterator[Job]:
    """Yield a job of generation 1."""
    with azurite.container("job") as client, azurite.container("inputs") as inputs:
        prepared = make_job(azurite, client, inputs)
        prepared.write_head(prepared.head().fenced(1))
        yield prepared


async def test_a_job_keeps_what_its_run_spec_says_and_what_the_generation_started_from(
    job: Job, access: BlobAccess, tmp_path: Path
) -> None:
    job.ask(keep_checkpoints=1, milestone_every_steps=25)
    container = JobContainer(access, job.grants.job)
    first = await _committed(container, RunDir(tmp_path), ALONE, 10)
    generation = replace(ALONE, checkpoint=first)
    for step in (20, 30, 40, 50):
        await _committed(container, RunDir(tmp_path), generation, step)

    head = job.head()
    reasons = {c.step: head.kept_as(c) for c in head.checkpoints}
    assert reasons == {10: "recent", 20: "best", 30: "milestone", 50: "milestone"}
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
    while committed := await Outbox(container, folder, range(1)).send_next():
        committer.expect_commit(committed)
    (entry,) = await committer.commit_complete()
    await committer.delete_dropped()
    return entry


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
    task = asyncio.create_task(_uploads(container, folder).run_to_end(requests))
    for step in (10, 20, 30, 40):
        save(folder, ALONE, 0, step, checkpoint_path(step, "g1"), 1, "periodic")
        await _names(job, step)
    concurrent_uploads = len(container.begun) - len(container.given_up)
    requests.request(StopRequest.SAVE)
    await until_true(lambda: container.given_up)
    save(folder, ALONE, 0, 50, checkpoint_path(50, "g1"), 1, "stop")
    requests.record_trainer_end(ended_well=True)
    await asyncio.wait_for(task, 30.0)

    assert concurrent_uploads == 1
    assert [c.step for c in job.head().checkpoints] == [50]
    assert len(container.begun) == 1  # the rest is left to the sweep


async def test_every_checkpoint_that_head_lets_go_of_is_deleted_while_it_trains(
    job: Job, access: BlobAccess, tmp_path: Path
) -> None:
    job.ask(keep_checkpoints=1)
    folder, requests = RunDir(tmp_path), StopRequests(QUICK, NodeClock())
    uploads = _uploads(JobContainer(access, job.grants.job), folder)
    task = asyncio.create_task(uploads.run_to_end(requests))
    for step in (10, 20, 30):
        save(folder, ALONE, 0, step, checkpoint_path(step, "g1"), 1, "periodic")
        await _names(job, step)
        await _is_deleted(job, step - 10)
    requests.record_trainer_end(ended_well=True)
    await asyncio.wait_for(task, 30.0)


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
    task = asyncio.create_task(uploads.run_to_end(requests))
    await _names(job, 10)
    # As fast as the first one went, the second would be there by now.
    await until_true(lambda: not uploads.pending_bytes)
    stalled.over.set()
    requests.record_trainer_end(ended_well=True)
    await asyncio.wait_for(task, 30.0)

    assert [c.step for c in job.head().checkpoints] == [10, 20]


async def _names(job: Job, step: int) -> None:
    """Wait until HEAD names the checkpoint of this step."""
    await until_true(lambda: step in [c.step for c in job.head().checkpoints])


async def _is_deleted(job: Job, step: int) -> None:
    """Wait until nothing is left of the checkpoint of this step."""
    await until_true(lambda: not job.names(checkpoint_path(step, "g1")))


def _uploads(container: JobContainer, folder: RunDir) -> SaveUploads:
    """Of a node that is alone in its generation."""
    world = NodeWorld(
        generation=ALONE, member=ALONE.members[0], folder=folder, logs=folder.root / "logs"
    )
    return SaveUploads(
        world, container, HeartbeatReports(), QUICK, NodeClock(), _nothing, lambda _: ()
    )


async def _nothing() -> None:
    """Grants last."""
