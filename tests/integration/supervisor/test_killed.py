"""A supervisor killed at any request of the commit's protocol: whole or not there, never torn.

Enumerated, not drawn: before and after each request that goes from outbox to HEAD, on a real
Azurite. Then either the supervisor comes back, or the job goes on without that machine.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from tests.azurite import Azurite
from tests.integration.supervisor.storage.test_commit import GENERATION, PATH
from tests.nodes.standin_trainer import save
from tests.nodes.supervised import run_spec
from trainer.contract import HEAD, RUN_SPEC, Head, InputFile
from trainer.rundir import RunDir
from trainer.supervisor.blob.container import BlobAccess, JobContainer
from trainer.supervisor.clock import NodeClock
from trainer.supervisor.input.fetch import fetch_checkpoint
from trainer.supervisor.upload.commit import Committer, read_head
from trainer.supervisor.upload.outbox import Outbox

T = TypeVar("T")
NEVER = 10**9
FILE = InputFile(path="inputs/train.jsonl", size=1, sha256="")


class Killed(BaseException):
    """Nothing of ours runs any more."""


class Mortal(BlobAccess):
    """Dies at its request number ``last``; ``answered``: that one was still carried out."""

    def __init__(self, last: int, *, answered: bool) -> None:
        super().__init__()
        self._left, self._answered = last, answered
        self.made = 0

    async def call_once(self, call: Callable[[], T]) -> T:
        """As ever, until its time has come."""
        self.made += 1
        if self.made < self._left:
            return await super().call_once(call)
        if self.made == self._left and self._answered:
            await super().call_once(call)
        raise Killed


async def committed(container: JobContainer, folder: RunDir) -> None:
    """Commit a whole save and finish what an earlier supervisor began, as a supervisor does."""
    committer = Committer(container, GENERATION, NodeClock())
    await committer.expect_earlier_saves()
    while outgoing := await Outbox(container, folder, range(2)).send_next():
        committer.expect_commit(outgoing)
    await committer.commit_complete()
    await committer.delete_dropped()


async def lived(url: str, folder: RunDir, last: int, *, answered: bool) -> int:
    """One life of a supervisor; how many requests it made."""
    access = Mortal(last, answered=answered)
    try:
        await committed(JobContainer(access, url), folder)
    except Killed:
        pass
    finally:
        access.close()
    return access.made


@pytest.mark.parametrize("answered", [False, True])
async def test_wherever_it_is_killed_the_checkpoint_is_whole_or_not_there(
    azurite: Azurite, tmp_path: Path, answered: bool
) -> None:
    last, is_done = 1, False
    while not is_done:
        with azurite.container("job") as client:
            client.upload_blob(HEAD, Head(generation=1).to_json())
            client.upload_blob(RUN_SPEC, run_spec(FILE, FILE).to_json())
            url, folder = azurite.container_sas(client.container_name), RunDir(tmp_path / str(last))
            for rank in (0, 1):
                save(folder, GENERATION, rank, 10, PATH, 2, "periodic")
            is_done = await lived(url, folder, last, answered=answered) < last
            container = JobContainer(access := BlobAccess(), url)

            for turn in range(2):  # as it was left, and once the supervisor has come back
                head, _ = await read_head(container)
                for entry in head.checkpoints:
                    await fetch_checkpoint(container, entry, tmp_path / f"{last}-{turn}")
                await lived(url, folder, NEVER, answered=True)
            head, _ = await read_head(container)
            access.close()

        assert [entry.path for entry in head.checkpoints] == [PATH]
        assert not list(folder.outbox.iterdir())
        last += 1
    assert last > 15, "the protocol has more requests than that"
