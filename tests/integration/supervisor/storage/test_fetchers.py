"""Processes that fetch: what comes, what does not, and what becomes of them."""

import asyncio
import errno
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import psutil
import pytest
from awscrt import checksums

from tests.azurite import Azurite
from tests.emulated.process import runs, wait_for
from tests.waiting import until_true
from trainer.contract import BLOCK
from trainer.process.disk_full import is_disk_full
from trainer.supervisor.blob.blocks import BlobRange
from trainer.supervisor.blob.container import (
    BlobAccess,
    BlobNotFoundError,
    BlobUnavailableError,
    JobContainer,
    PreconditionFailedError,
)
from trainer.supervisor.blob.fetch_processes import FetchProcesses
from trainer.supervisor.blob.transfer import LARGE, download_blob

DATA = bytes(range(256)) * 40
# Of a supervisor of its own: prints the processes that it has started.
OWNER = """
import asyncio, os, pathlib, psutil, sys
from trainer.supervisor.blob.container import BlobError
from trainer.supervisor.blob.blocks import BlobRange
from trainer.supervisor.blob.fetch_processes import FetchProcesses

async def main():
    part = BlobRange(url=sys.argv[1], offset=0, length=1, path=pathlib.Path(os.devnull))
    try:
        await FetchProcesses().receive(part)
    except BlobError:
        print(*(p.pid for p in psutil.Process().children(recursive=True)), flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
def url(azurite: Azurite) -> str:
    """Return the URL of the job's container as a node sees it, with DATA in the blob "file"."""
    with azurite.container("job") as owner:
        owner.upload_blob("file", DATA)
        return azurite.container_sas(owner.container_name)


@pytest.fixture
def into(tmp_path: Path) -> Path:
    """Return a file of zeros into which bytes can be fetched."""
    path = tmp_path / "into"
    path.write_bytes(bytes(len(DATA)))
    return path


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """Another one."""
    path = tmp_path / "other"
    path.touch()
    return path


def content(path: Path) -> bytes:
    """Return the content of a file."""
    return path.read_bytes()


def below_children() -> list[int]:
    """Those that fetch are started by a child of ours, which starts nothing else."""
    children = psutil.Process().children()
    return [process.pid for child in children for process in child.children()]


def part(url: str, path: Path, name: str = "file", etag: str = "") -> BlobRange:
    """Return the range from byte 1000 to the end of a blob."""
    blob_url, sas = url.split("?")
    end = {"offset": 1000, "length": len(DATA) - 1000}
    return BlobRange(url=f"{blob_url}/{name}?{sas}", path=path, etag=etag, **end)


async def test_a_large_file_comes_back_as_it_went(
    azurite: Azurite, access: BlobAccess, tmp_path: Path
) -> None:
    data = os.urandom(BLOCK) * (LARGE // BLOCK) + b"and some"
    with azurite.container("job") as owner:
        owner.upload_blob("large", data)
        container = JobContainer(access, azurite.container_sas(owner.container_name))
        crc = await download_blob(access, container.blob("large"), tmp_path / "back", len(data))

    assert crc == f"{checksums.crc64nvme(data):016x}"
    assert (tmp_path / "back").read_bytes() == data


async def test_what_blob_refuses_is_refused_as_in_a_thread(
    access: BlobAccess, url: str, into: Path
) -> None:
    with pytest.raises(BlobNotFoundError, match="nothing"):
        await access.receive(part(url, into, name="nothing"), in_subprocess=True)
    with pytest.raises(PreconditionFailedError, match="file"):
        await access.receive(part(url, into, etag="another"), in_subprocess=True)


async def test_a_full_disk_is_told(access: BlobAccess, url: str) -> None:
    with pytest.raises(OSError, match="No space left") as error:
        await access.receive(part(url, Path("/dev/full")), in_subprocess=True)

    assert is_disk_full(error.value)


async def test_a_secret_is_in_no_error(into: Path) -> None:
    fetchers = FetchProcesses()
    unreachable = part("http://127.0.0.1:9/a/c?sig=secret", into)
    with pytest.raises(BlobUnavailableError) as error:
        await fetchers.receive(unreachable)
    fetchers.close()

    assert "secret" not in f"{error.value!r} {error.value.__cause__!r}"


async def test_after_a_process_was_killed_others_fetch(
    access: BlobAccess, url: str, into: Path, other: Path
) -> None:
    before = set(below_children())
    await access.receive(part(url, other), in_subprocess=True)
    started = set(below_children()) - before
    for pid in started:
        os.kill(pid, signal.SIGKILL)

    await access.receive(part(url, into), in_subprocess=True)

    assert started
    assert content(into) == bytes(1000) + DATA[1000:]


async def test_where_none_can_start_a_thread_fetches(url: str, into: Path) -> None:
    def start() -> ProcessPoolExecutor:
        raise OSError(errno.ENOSPC, "No space left on device")  # for semaphores, in memory

    access = BlobAccess(FetchProcesses(start))
    await access.receive(part(url, into), in_subprocess=True)
    access.close()

    assert content(into) == bytes(1000) + DATA[1000:]


async def test_one_that_hangs_is_killed_and_another_one_fetches(url: str, into: Path) -> None:
    fetchers, before = FetchProcesses(patience=2.0), set(below_children())
    access = BlobAccess(fetchers)
    with socket.create_server(("127.0.0.1", 0)) as silent_server:
        unreachable = part(f"http://127.0.0.1:{silent_server.getsockname()[1]}/a/c?s=1", into)
        waiter = asyncio.create_task(fetchers.receive(unreachable))
        await until_true(lambda: set(below_children()) - before)
        hung = set(below_children()) - before
        with pytest.raises(BlobUnavailableError, match="into"):
            await waiter
    await access.receive(part(url, into), in_subprocess=True)
    access.close()

    wait_for(lambda: not any(runs(pid) for pid in hung))
    assert content(into) == bytes(1000) + DATA[1000:]


async def test_a_fetch_that_is_given_up_takes_no_other_along(url: str, into: Path) -> None:
    fetchers = FetchProcesses()
    with socket.create_server(("127.0.0.1", 0)) as silent_server:
        unreachable = part(f"http://127.0.0.1:{silent_server.getsockname()[1]}/a/c?s=1", into)
        waiter = asyncio.create_task(fetchers.receive(unreachable))
        await fetchers.receive(part(url, into))
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        crc, _ = await fetchers.receive(part(url, into))
    fetchers.close()

    assert crc == checksums.crc64nvme(DATA[1000:])


def test_they_end_with_a_supervisor_that_is_killed(url: str) -> None:
    command = [sys.executable, "-c", OWNER, "http://127.0.0.1:9/a/c/b?s=1"]
    owner = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert owner.stdout
    started = [int(token) for token in owner.stdout.readline().split()]
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()

    assert len(started) >= 2  # those that fetch, and who starts them
    wait_for(lambda: not any(runs(pid) for pid in started))
