"""A large file goes in parts, and a command that is repeated goes on where the last one stopped."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rekindle.cli.api_client import ApiClient
from rekindle.cli.connection import ServiceConnection
from rekindle.cli.errors import CliError
from rekindle.cli.files.upload_parts import send_in_parts
from service.db.files.files import CONTAINER
from tests.integration.cli.conftest import Shell
from tests.world import DATASET

PART = len(DATASET) // 9  # not the last part's size


@dataclass
class Seen:
    """What a person was shown."""

    sent: list[int] = field(default_factory=list)

    def show_sent(self, done: int) -> None:
        self.sent.append(done)

    def show_checked(self, done: int) -> None:
        """Nothing to note."""

    def show_retry(self, attempt: object) -> None:
        """Nothing to note."""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder where the command line keeps unfinished uploads, in a temporary home."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "rekindle" / "uploads"


def noted(home: Path) -> list[str]:
    """Ids of uploads that the next command would go on with."""
    return [note.read_text() for note in home.iterdir()]


def client_of(shell: Shell) -> ApiClient:
    connection = ServiceConnection(url=f"{shell.url}/v1", key=shell.key, source="test")
    return ApiClient(connection, sleep=lambda _: None)


async def test_a_stopped_upload_sends_only_what_is_missing(shell: Shell, home: Path) -> None:
    path, recorder = Path(shell.dataset()), Seen()

    class Stopped(Seen):
        def show_sent(self, done: int) -> None:
            super().show_sent(done)
            shell.switch.away_for = "/parts"  # the service is gone after some parts

    async def send(progress: Seen) -> dict[str, object]:
        with client_of(shell) as client:
            arguments = (client, path, path.name, progress, PART)
            return await asyncio.to_thread(send_in_parts, *arguments)

    with pytest.raises(CliError):
        await send(Stopped())
    (upload_id,) = noted(home)
    upload = (await shell.world.call("GET", f"/v1/uploads/{upload_id}")).json()
    part_count = len(upload["parts"])
    shell.switch.away_for = ""
    file = await send(recorder)

    assert 0 < part_count < 10
    assert (file["bytes"], file["filename"], recorder.sent[-1]) == (
        len(DATASET),
        path.name,
        len(DATASET),
    )
    assert f"file-{upload['id'].removeprefix('upload-')}" == file["id"]
    assert noted(home) == []
    stored, _ = await shell.world.store.read(CONTAINER, str(file["id"]))
    assert stored == DATASET


async def test_a_lost_answer_is_found(shell: Shell, home: Path) -> None:
    path = Path(shell.dataset(data=DATASET + b"\n{}"))
    with client_of(shell) as client:
        for _ in range(2):
            with pytest.raises(CliError, match="line 41"):
                await asyncio.to_thread(send_in_parts, client, path, "t", Seen(), PART)
        path = Path(shell.dataset("good.jsonl"))
        first = await asyncio.to_thread(send_in_parts, client, path, "t", Seen(), PART)
        second = await asyncio.to_thread(send_in_parts, client, path, "t", Seen(), PART)

    assert first["id"] != second["id"]
    assert noted(home) == []
