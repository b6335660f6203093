"""From the outbox to HEAD and back: what is committed, what never is; on a real Azurite."""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest
from azure.storage.blob import ContainerClient

from tests.azurite import Azurite
from tests.nodes.scripted_node import metrics
from tests.nodes.standin_trainer import save
from tests.nodes.supervised import ALONE
from trainer.checkpoint.checksum import describe_blocks
from trainer.contract import (
    HEAD,
    MEASURED,
    Head,
    StaleGeneration,
    StepMetrics,
    checkpoint_path,
)
from trainer.rundir import RankSave, RunDir, rank_record
from trainer.supervisor.blob.container import BlobAccess, BlobUnavailableError, JobContainer
from trainer.supervisor.blob.transfer import CorruptError
from trainer.supervisor.clock import NodeClock
from trainer.supervisor.report.heartbeat_reports import HeartbeatReports
from trainer.supervisor.upload.commit import Committer
from trainer.supervisor.upload.outbox import Outbox

PATH = checkpoint_path(10, "g1")
Undelivered = Callable[[int], Sequence[StepMetrics]]
LATER = checkpoint_path(20, "g1")


class Flaky(JobContainer):
    """A container whose next writes of HEAD get no answer; ``lands``: though they were done."""

    lands = True
    failures = 0
    rival: tuple[ContainerClient, str] | None = None  # writes HEAD just before we do

    async def write(self, name: str, data: bytes, *, if_match: str) -> str:
        """Write as asked, or not, and lose the answer."""
        if self.rival:
            self.rival[0].upload_blob(name, self.rival[1], overwrite=True)
        if not self.failures:
            return await super().write(name, data, if_match=if_match)
        self.failures -= 1
        if self.lands:
            await super().write(name, data, if_match=if_match)
        raise BlobUnavailableError("no answer")


@pytest.fixture
def container(azurite: Azurite, client: ContainerClient, access: BlobAccess) -> Flaky:
    """Return the job's container as the node sees it, with failures that a test can set."""
    return Flaky(access, azurite.container_sas(client.container_name))


@pytest.fixture
def folder(tmp_path: Path) -> RunDir:
    """Return the run folder of generation 1."""
    return RunDir(tmp_path / "gen-0001")


class TestCommit:
    async def test_what_another_generation_sent_is_not_recalled(
        self, container: Flaky, client: ContainerClient, folder: RunDir
    ) -> None:
        await _saved(container, folder)
        client.upload_blob(HEAD, Head(generation=2).to_json(), overwrite=True)
        successor = Committer(container, replace(GENERATION, number=2), NodeClock())

        await successor.expect_earlier_saves()

        assert successor.is_idle

    async def test_a_trainer_that_makes_room_meanwhile_costs_no_save(
        self, container: Flaky, folder: RunDir
    ) -> None:
        outbox, stopped = Outbox(container, folder, range(1)), Event()
        save(folder, GENERATION, 0, 10, PATH, 1, "stop")
        for number in range(3000):
            (folder.save_folder(PATH) / str(number)).touch()
        making_room = asyncio.create_task(asyncio.to_thread(_make_room, folder, stopped))
        try:
            committed = await outbox.send_next()
        finally:
            stopped.set()
            await making_room

        assert committed is not None
        assert committed.path == PATH

    async def test_the_record_of_what_was_sent_has_the_sha_256_of_its_blocks(
        self, container: Flaky, client: ContainerClient, folder: RunDir
    ) -> None:
        save(folder, GENERATION, 0, 10, PATH, 1, "stop")
        path = folder.save_folder(PATH) / rank_record(0)
        record = RankSave.from_json(path.read_bytes())
        data = path.with_name(record.files[0].name).read_bytes()
        file = describe_blocks(memoryview(data), record.files[0].name)
        path.write_text(replace(record, files=(file,)).to_json())

        await Outbox(container, folder, range(1)).send_next()

        (sent,) = RankSave.from_json(client.download_blob(f"{PATH}/{path.name}").readall()).files
        assert sent == replace(file, block_sha256=(hashlib.sha256(data).hexdigest(),))

    async def test_nothing_is_committed_while_a_record_is_missing(
        self, container: Flaky, client: ContainerClient, folder: RunDir
    ) -> None:
        committer = await _saved(container, folder)
        client.delete_blob(f"{PATH}/rank-00001.json")

        assert await committer.commit_complete() == []
        assert _head(client).checkpoints == ()
        assert not committer.is_idle

    async def test_a_record_without_its_data_is_refused(
        self, container: Flaky, client: ContainerClient, folder: RunDir
    ) -> None:
        committer = await _saved(container, folder)
        client.delete_blob(f"{PATH}/rank-00001.bin")

        assert await committer.commit_complete() == []
        assert committer.is_idle
        assert _head(client).checkpoints == ()

    @pytest.mark.parametrize("lands", [True, False])
    async def test_a_head_write_without_an_answer_is_settled_by_reading_head(
        self, container: Flaky, client: ContainerClient, folder: RunDir, *, lands: bool
    ) -> None:
        committer = await _saved(container, folder)
        container.failures, container.lands = 2, lands
        (entry,) = await committer.commit_complete()

        assert _head(client).checkpoints == (entry,)

    async def test_what_was_sent_and_not_committed_is_recalled_by_the_next_supervisor(
        self, container: Flaky, client: ContainerClient, folder: RunDir
    ) -> None:
        await _saved(container, folder)  # and then it was killed
        successor = Committer(container, GENERATION, NodeClock())

        assert await successor.expect_earlier_saves() is None
        (entry,) = await successor.commit_complete()
        assert _head(client).checkpoints == (entry,)
        await successor.expect_earlier_saves()
        assert successor.is_idle  # what HEAD names is not committed twice

    async def test_measurements_that_nobody_has_heard_are_left_beside_the_checkpoint(
        self, container: Flaky, client: ContainerClient, folder: RunDir
    ) -> None:
        reports = HeartbeatReports()
        reports.add_metrics([metrics(step) for step in (9, 10, 11)])
        committer = await _saved(container, folder, reports.undelivered)
        await committer.commit_complete()

        lines = client.download_blob(f"{PATH}/{MEASURED}").readall().splitlines()
        assert [StepMetrics.from_json(line).step for line in lines] == [9, 10]

    @pytest.mark.parametrize("racing", [False, True], ids=["before", "racing"])
    async def test_a_newer_generation_keeps_us_out_also_if_it_comes_while_we_write(
        self, container: Flaky, client: ContainerClient, folder: RunDir, *, racing: bool
    ) -> None:
        committer, fenced = await _saved(container, folder), Head(generation=2).to_json()
        if racing:
            container.rival = (client, fenced)
        else:
            client.upload_blob(HEAD, fenced, overwrite=True)
        with pytest.raises(StaleGeneration):
            await committer.commit_complete()

        assert _head(client) == Head(generation=2)

    async def test_an_older_save_is_dropped_once_a_newer_one_is_committed(
        self, container: Flaky, client: ContainerClient, folder: RunDir
    ) -> None:
        save(folder, GENERATION, 0, 10, PATH, 2, "periodic")  # the peer's part never comes
        for rank in (0, 1):
            save(folder, GENERATION, rank, 20, checkpoint_path(20, "g1"), 2, "periodic")
        committer = Committer(container, GENERATION, NodeClock())
        for ranks in (range(1), range(2)):
            while committed := await Outbox(container, folder, ranks).send_next():
                committer.expect_commit(committed)
        save(folder, GENERATION, 1, 20, checkpoint_path(20, "g1"), 2, "periodic")
        await Outbox(container, folder, range(1, 2)).send_next()
        await committer.commit_complete()

        assert [c.step for c in _head(client).checkpoints] == [20]
        assert committer.is_idle

    async def test_a_corrupt_save_does_not_block_the_ones_after_it(
        self, container: Flaky, client: ContainerClient, folder: RunDir
    ) -> None:
        for rank in (0, 1):
            save(folder, GENERATION, rank, 10, PATH, 2, "periodic")
            save(folder, GENERATION, rank, 20, LATER, 2, "periodic")
        (folder.save_folder(PATH) / "rank-00001.bin").write_bytes(b"flipped")
        with pytest.raises(CorruptError):
            await _sent(container, folder)
        await (await _sent(container, folder)).commit_complete()

        assert [c.step for c in _head(client).checkpoints] == [20]


GENERATION = replace(ALONE, processes_per_node=2, run_spec_sha256="0" * 64)


def _make_room(folder: RunDir, stopped: Event) -> None:
    while not stopped.is_set():
        if any((folder.root / "sent").glob("*")):
            folder.make_room()


async def _saved(
    container: JobContainer, folder: RunDir, undelivered: Undelivered = lambda _: ()
) -> Committer:
    """Both ranks' parts of one checkpoint are in Blob."""
    for rank in (0, 1):
        save(folder, GENERATION, rank, 10, PATH, 2, "periodic")
    return await _sent(container, folder, undelivered)


async def _sent(
    container: JobContainer, folder: RunDir, undelivered: Undelivered = lambda _: ()
) -> Committer:
    committer = Committer(container, GENERATION, NodeClock(), undelivered)
    while committed := await Outbox(container, folder, range(2)).send_next():
        committer.expect_commit(committed)
    return committer


def _head(client: ContainerClient) -> Head:
    return Head.from_json(client.download_blob(HEAD).readall())
