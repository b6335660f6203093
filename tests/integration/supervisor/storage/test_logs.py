"""What ranks print, on its way to append blobs; on a real Azurite."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from azure.storage.blob import ContainerClient

from tests.azurite import Azurite
from trainer.supervisor.blob.container import BlobAccess, BlobUnavailableError, JobContainer
from trainer.supervisor.report.log_upload import LogUploads

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
        wrong = await logs.flush()
        _print(tmp_path, "after\n")
        await logs.flush()
        access.close()

        assert wrong == ["no answer"]
        assert _log(client, 0) == "before\nduring\nafter\n"


def _print(logs: Path, text: str) -> None:
    folder = logs / "run" / "attempt_0" / "0"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "stdout.log").open("a") as file:
        file.write(text)


def _log(client: ContainerClient, rank: int) -> str:
    return client.download_blob(f"logs/att-1/rank-{rank:05d}.log").readall().decode()
