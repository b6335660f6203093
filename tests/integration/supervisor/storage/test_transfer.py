"""Files, small blobs and logs to and from a real Azurite."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from awscrt import checksums
from azure.storage.blob import ContainerClient

from tests.azurite import Azurite
from trainer.checkpoint.checksum import describe_blocks
from trainer.contract import BLOCK, HEAD
from trainer.supervisor.blob.container import (
    AccessRefusedError,
    BlobAccess,
    BlobUnavailableError,
    JobContainer,
    PreconditionFailedError,
)
from trainer.supervisor.blob.transfer import CorruptError, download_blob, upload_file
from trainer.supervisor.report.log_upload import LogUploads


class TestTransfer:
    @pytest.mark.parametrize("size", [0, 1, BLOCK, 2 * BLOCK + 12345])
    async def test_a_file_comes_back_as_it_went(
        self, container: JobContainer, tmp_path: Path, size: int
    ) -> None:
        path, target = tmp_path / "there", tmp_path / "back"
        crc = _write(path, bytes(range(256)) * (size // 256) + bytes(size % 256))
        await upload_file(container.access, container.blob("file"), path, crc)
        stored = (await container.list_blobs("file"))[""]

        blob = container.blob("file")
        assert await download_blob(container.access, blob, target, size, stored.etag) == crc
        assert target.read_bytes() == path.read_bytes()
        assert (stored.size, stored.crc64nvme) == (size, crc)

    async def test_another_file_is_never_overwritten(
        self, container: JobContainer, tmp_path: Path
    ) -> None:
        blob = container.blob("file")
        await upload_file(container.access, blob, tmp_path / "a", _write(tmp_path / "a", b"first"))
        with pytest.raises(PreconditionFailedError):
            await upload_file(
                container.access, blob, tmp_path / "b", _write(tmp_path / "b", b"other")
            )

    async def test_a_file_that_rotted_on_disk_is_not_uploaded(
        self, container: JobContainer, tmp_path: Path
    ) -> None:
        crc = _write(tmp_path / "file", b"as written by the trainer")
        _write(tmp_path / "file", b"as read by the supervisor")
        with pytest.raises(CorruptError, match="file"):
            await upload_file(container.access, container.blob("file"), tmp_path / "file", crc)

        assert await container.list_blobs("file") == {}

    async def test_a_block_whose_crc_is_not_the_one_that_was_told_is_not_uploaded(
        self, container: JobContainer, tmp_path: Path
    ) -> None:
        data = bytes(BLOCK) + b"more"
        (tmp_path / "file").write_bytes(data)
        entry, blob = describe_blocks(memoryview(data), "file"), container.blob("file")
        wrong_blocks = entry.blocks[::-1]
        with pytest.raises(CorruptError, match="file"):
            await upload_file(
                container.access, blob, tmp_path / "file", entry.crc64nvme, blocks=wrong_blocks
            )
        hashes = await upload_file(
            container.access, blob, tmp_path / "file", entry.crc64nvme, blocks=entry.blocks
        )

        assert list(hashes) == [
            hashlib.sha256(block).hexdigest() for block in (bytes(BLOCK), b"more")
        ]
        assert (await container.list_blobs("file"))[""].crc64nvme == entry.crc64nvme

    async def test_a_blob_of_another_size_is_refused(
        self, container: JobContainer, client: ContainerClient, tmp_path: Path
    ) -> None:
        client.upload_blob("file", b"12345678")
        with pytest.raises(CorruptError, match="8 bytes, not 4"):
            await download_blob(container.access, container.blob("file"), tmp_path / "file", 4)

    async def test_a_sas_that_ran_out_says_when(
        self, azurite: Azurite, container: JobContainer, client: ContainerClient
    ) -> None:
        container.renew(azurite.container_sas(client.container_name, hours=-2.0))
        with pytest.raises(AccessRefusedError, match=r"valid until \d{4}-.*fresh grants"):
            await container.read(HEAD)
        container.renew(azurite.container_sas(client.container_name))

        assert (await container.read(HEAD))[0]

    async def test_an_error_never_tells_the_sas(self, container: JobContainer) -> None:
        container.renew("http://127.0.0.1:9/account/container?sp=racwdl&sig=secret")
        with pytest.raises(BlobUnavailableError) as error:
            await container.read("x")

        assert "secret" not in str(error.value)
        assert error.value.__cause__ is None


def _write(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return f"{checksums.crc64nvme(data):016x}"


T = TypeVar("T")


class Deaf(BlobAccess):
    """Loses the next request, or the answer to it."""

    loses = ""

    async def call_once(self, call: Callable[[], T]) -> T:
        """Call, or not, and say that no answer came."""
        loses, self.loses = self.loses, ""
        if loses == "request":
            raise BlobUnavailableError("no answer")
        result = await super().call_once(call)
        if loses == "answer":
            raise BlobUnavailableError("no answer")
        return result


class TestLogs:
    async def test_each_line_arrives_once_in_order(
        self, container: JobContainer, client: ContainerClient, tmp_path: Path
    ) -> None:
        logs = LogUploads(container, "att-1", range(2, 3), tmp_path)
        _print(tmp_path, "one\ntw")
        await logs.flush()
        _print(tmp_path, "o\n")
        await logs.flush()
        await logs.flush()

        assert _log(client, 2) == "one\ntwo\n"

    async def test_the_last_flush_sends_half_lines_too(
        self, container: JobContainer, client: ContainerClient, tmp_path: Path
    ) -> None:
        logs = LogUploads(container, "att-1", range(1), tmp_path)
        _print(tmp_path, "killed in the mid")
        await logs.flush()
        await logs.flush(last=True)

        assert _log(client, 0) == "killed in the mid"

    async def test_somebody_elses_lines_do_not_confuse_ours(
        self, container: JobContainer, client: ContainerClient, tmp_path: Path
    ) -> None:
        logs = LogUploads(container, "att-1", range(1), tmp_path)
        _print(tmp_path, "ours\n")
        await logs.flush()
        client.get_blob_client("logs/att-1/rank-00000.log").append_block(b"theirs\n")
        _print(tmp_path, "ours again\n")
        await logs.flush()

        assert _log(client, 0) == "ours\ntheirs\nours again\n"

    @pytest.mark.parametrize("landed", [True, False])
    async def test_an_answer_that_is_lost_doubles_no_line(
        self, azurite: Azurite, client: ContainerClient, tmp_path: Path, *, landed: bool
    ) -> None:
        access = Deaf()
        container = JobContainer(access, azurite.container_sas(client.container_name))
        logs = LogUploads(container, "att-1", range(1), tmp_path)
        _print(tmp_path, "before\n")
        await logs.flush()
        _print(tmp_path, "during\n")
        access.loses = "answer" if landed else "request"
        flush_error = await logs.flush()
        container.renew("http://127.0.0.1:9/account/container?sig=none")
        unreachable = await logs.flush()
        container.renew(azurite.container_sas(client.container_name))
        _print(tmp_path, "after\n")
        await logs.flush()
        access.close()

        assert flush_error == ["no answer"]
        assert len(unreachable) == 1, "logs use the newest grants"
        assert _log(client, 0) == "before\nduring\nafter\n"


def _print(logs: Path, text: str) -> None:
    folder = logs / "run" / "attempt_0" / "0"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "stdout.log").open("a") as file:
        file.write(text)


def _log(client: ContainerClient, rank: int) -> str:
    return client.download_blob(f"logs/att-1/rank-{rank:05d}.log").readall().decode()
