"""Files and small blobs to and from a real Azurite."""

import hashlib
from pathlib import Path

import pytest
from awscrt import checksums
from azure.storage.blob import ContainerClient

from tests.azurite import Azurite
from trainer.checkpoint.checksum import describe_blocks
from trainer.contract import BLOCK, HEAD
from trainer.supervisor.blob.container import (
    AccessRefusedError,
    BlobUnavailableError,
    JobContainer,
    PreconditionFailedError,
)
from trainer.supervisor.blob.transfer import CorruptError, download_blob, upload_file


class TestTransfer:
    @pytest.mark.parametrize("size", [0, 1, BLOCK, 2 * BLOCK + 12345])
    async def test_a_file_comes_back_as_it_went(
        self, container: JobContainer, tmp_path: Path, size: int
    ) -> None:
        path, back = tmp_path / "there", tmp_path / "back"
        crc = _write(path, bytes(range(256)) * (size // 256) + bytes(size % 256))
        await upload_file(container.access, container.blob("file"), path, crc)
        stored = (await container.list_blobs("file"))[""]

        blob = container.blob("file")
        assert await download_blob(container.access, blob, back, size, stored.etag) == crc
        assert back.read_bytes() == path.read_bytes()
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
        told, blob = describe_blocks(memoryview(data), "file"), container.blob("file")
        wrong = told.blocks[::-1]
        with pytest.raises(CorruptError, match="file"):
            await upload_file(
                container.access, blob, tmp_path / "file", told.crc64nvme, blocks=wrong
            )
        hashes = await upload_file(
            container.access, blob, tmp_path / "file", told.crc64nvme, blocks=told.blocks
        )

        assert list(hashes) == [
            hashlib.sha256(part).hexdigest() for part in (bytes(BLOCK), b"more")
        ]
        assert (await container.list_blobs("file"))[""].crc64nvme == told.crc64nvme

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
        with pytest.raises(BlobUnavailableError) as told:
            await container.read("x")

        assert "secret" not in str(told.value)
        assert told.value.__cause__ is None


def _write(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return f"{checksums.crc64nvme(data):016x}"
