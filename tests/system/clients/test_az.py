"""The real `az` cannot tell the emulator from the cloud. Needs `make az`, which installs it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emulated.process import Emulator
from tests.system.clients.az import STORY, Shell, program

PROGRAM = program()


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """`az`, and an emulator whose VMs run nothing."""
    assert PROGRAM is not None
    emulator = Emulator(tmp_path / "state", "--hollow", "--notice-seconds", "2")
    yield Shell(PROGRAM, emulator, tmp_path)
    emulator.stop()


@pytest.mark.skipif(PROGRAM is None, reason="az is not installed here: make az")
@pytest.mark.timeout(600)
def test_az_does_everything_that_one_does_by_hand(shell: Shell) -> None:
    for chapter in STORY:
        chapter(shell)
