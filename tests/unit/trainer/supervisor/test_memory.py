"""What a machine's memory gives a new trainer, how fast it uploads, and what Blob refuses."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.nodes.supervised import ALONE
from trainer.checkpoint.checksum import describe_file
from trainer.contract import FileEntry, Member
from trainer.rundir import RunDir
from trainer.supervisor.blob.container import BlobAccess, JobContainer
from trainer.supervisor.blob.errors import PreconditionFailedError, error_for_status
from trainer.supervisor.blob.transfer import UploadRateLimiter
from trainer.supervisor.clock import NodeClock, NodeLimits
from trainer.supervisor.control.launch import NodeWorld
from trainer.supervisor.machine.memory_files import MemoryFolder
from trainer.supervisor.report.heartbeat_reports import HeartbeatReports
from trainer.supervisor.upload.uploads import SaveUploads


@pytest.fixture
def last_save(tmp_path: Path) -> Path:
    """Write the last save of rank 3 of generation 1 and return its path."""
    folder = RunDir(tmp_path / "run")
    folder.root.mkdir()
    MemoryFolder(tmp_path / "memory").assign_folder(folder, 1)
    path = folder.memory / "rank-00003.b"
    path.write_bytes(b"state")
    return path


def entry_of(path: Path, name: str = "rank-00003.safetensors") -> FileEntry:
    file = describe_file(path, name)
    return FileEntry(name=name, size=file.size, etag="", crc64nvme=file.crc64nvme)


def test_the_newest_save_of_a_crashed_trainer_is_not_fetched_again(
    last_save: Path, tmp_path: Path
) -> None:
    target = tmp_path / "checkpoint" / "rank-00003.safetensors"
    memory = MemoryFolder(tmp_path / "memory")

    assert memory.reuse_file(entry_of(last_save), target)
    memory.keep_only(2)

    assert not last_save.exists()
    assert target.read_bytes() == b"state"


def test_a_save_that_differs_in_one_byte_is_another_one(last_save: Path, tmp_path: Path) -> None:
    entry = entry_of(last_save)
    last_save.write_bytes(b"stats")

    assert not MemoryFolder(tmp_path / "memory").reuse_file(entry, tmp_path / "target")


def test_what_a_trainer_still_saves_into_is_given_to_nobody(
    last_save: Path, tmp_path: Path
) -> None:
    memory = MemoryFolder(tmp_path / "memory")
    memory.assign_folder(RunDir(tmp_path / "run"), 1)

    assert not memory.reuse_file(entry_of(last_save), tmp_path / "target")


async def test_uploads_keep_to_their_pace_until_it_is_lifted() -> None:
    pace, started_at = UploadRateLimiter(1_000_000, time.monotonic), time.monotonic()
    for _ in range(3):
        await pace.wait_for_turn(100_000)
    spent = time.monotonic() - started_at
    pace.lift_cap()
    await pace.wait_for_turn(10**12)
    await pace.wait_for_turn(10**12)

    assert spent >= 0.2


def uploads(nodes: int, limits: NodeLimits, folder: Path) -> SaveUploads:
    members = tuple(
        Member(node_id=f"n{n}", vm_id=f"n{n}", address="127.0.0.1", node_rank=n)
        for n in range(nodes)
    )
    generation = replace(ALONE, members=members, processes_per_node=8)
    world = NodeWorld(
        generation=generation, member=members[0], folder=RunDir(folder), logs=folder / "logs"
    )
    container = JobContainer(BlobAccess(), "https://account.blob.core.windows.net/job?sig=none")
    return SaveUploads(
        world, container, HeartbeatReports(), limits, NodeClock(), _nothing, lambda _: ()
    )


@pytest.mark.parametrize(
    ("nodes", "gbps", "rate"), [(8, 60, 0.9e9), (16, 60, 7.5e9 / 16), (8, 25, 3.125e9 / 8)]
)
def test_all_nodes_together_send_no_more_than_the_account_takes(
    tmp_path: Path, nodes: int, gbps: float, rate: float
) -> None:
    limited = uploads(nodes, replace(NodeLimits(), ingress=gbps * 1e9 / 8), tmp_path)

    assert limited.rate_limit == rate
    assert nodes * limited.rate_limit <= gbps * 1e9 / 8


async def _nothing() -> None:
    """Grants last."""


@pytest.mark.parametrize("code", ["BlobArchived", "BlobBeingRehydrated"])
def test_a_blob_in_the_archive_is_not_one_that_was_written_again(code: str) -> None:
    archived = error_for_status("https://account/job/checkpoints/9/file?sig=1", 409, code)
    written = error_for_status(
        "https://account/job/checkpoints/9/file?sig=1", 409, "BlobAlreadyExists"
    )

    assert isinstance(written, PreconditionFailedError)
    assert not isinstance(archived, PreconditionFailedError)
    assert "archive" in str(archived)
