"""How the local stack keeps its programs: watched, started again, ended, found after a crash."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from bench import ports
from rekindle.local import leftover_processes
from rekindle.local.parts import PartRunner, StackPart
from rekindle.local.running_stack import VM_VARIABLE
from rekindle.local.state_folder import StackPorts, StackStartError, StateFolder
from tests import waiting

SERVE = "import pathlib, signal; print('hello'); pathlib.Path({flag!r}).touch(); signal.pause()"


class Stage:
    """A crew on a state folder, what it said, and a part that is ready once its flag is there."""

    def __init__(self, folder: Path) -> None:
        self.state = StateFolder(folder)
        self.flag = folder / "flag"
        self.printed: list[str] = []
        self.crew = PartRunner(self.state, self.printed.append)

    def part(self, program: str = SERVE, *, within: float = 20.0) -> StackPart:
        async def ready() -> bool:
            return self.flag.exists()

        argv = [sys.executable, "-c", program.format(flag=str(self.flag))]
        return StackPart(name="echo", argv=argv, ready=ready, ready_within=within)

    def pid(self) -> int:
        """Return what the part's note says; 0 for the instant in which its program writes it."""
        return int((self.state / "pids" / "echo").read_text() or 0)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    new_stage = Stage(tmp_path)
    yield new_stage
    await new_stage.crew.stop_parts()


async def test_a_part_that_dies_is_named_shown_and_started_again(stage: Stage) -> None:
    await stage.crew.start_part(stage.part())
    first = stage.pid()
    os.kill(first, signal.SIGKILL)

    async def pid() -> int:
        return stage.pid()

    await waiting.until(pid, lambda now: now not in (0, first))

    assert "echo died (exit -9)" in stage.printed[0]
    assert "    hello" in stage.printed[0]


async def test_a_part_that_does_not_come_up_at_once_is_tried_again(stage: Stage) -> None:
    moody = (
        "import pathlib, signal, sys\n"
        "flag, moods = pathlib.Path({flag!r}), pathlib.Path({flag!r} + '.moods')\n"
        "moods.write_text(moods.read_text() + 'x' if moods.exists() else '')\n"
        "if moods.read_text() == 'x':\n"
        "    sys.exit('no luck this time')\n"
        "flag.touch(); signal.pause()\n"
    )
    await stage.crew.start_part(stage.part(moody))
    first = stage.pid()
    stage.flag.unlink()
    os.kill(first, signal.SIGKILL)

    async def ready() -> str:
        note = stage.state / "ready" / "echo"
        return note.read_text() if note.exists() else ""

    new_pid = await waiting.until(ready, lambda pid: pid not in ("", str(first)))

    assert new_pid == str(stage.pid())
    assert any("no luck this time" in story for story in stage.printed)


async def test_a_part_that_dies_again_and_again_is_given_up(stage: Stage) -> None:
    program = "import pathlib; pathlib.Path({flag!r}).touch()"
    stage.flag.touch()
    await stage.crew.start_part(stage.part(program))

    with pytest.raises(StackStartError, match="echo died"):
        await stage.crew.wait_for_failure()


async def test_a_part_that_ends_before_it_is_ready_shows_its_last_lines(stage: Stage) -> None:
    with pytest.raises(StackStartError, match=r"echo exited at once:\n    no luck"):
        await stage.crew.start_part(stage.part("print('no luck')"))


async def test_a_part_that_is_never_ready_is_late(stage: Stage) -> None:
    idle = "import signal; signal.pause()"

    with pytest.raises(StackStartError, match="not ready after 0 s"):
        await stage.crew.start_part(stage.part(idle, within=0.2))


async def test_what_a_killed_stack_left_is_ended_by_the_next(tmp_path: Path) -> None:
    killed = (
        "import asyncio, os, pathlib, signal, sys\n"
        "from tests.integration.service.test_parts import Stage\n"
        "stage = Stage(pathlib.Path(sys.argv[1]))\n"
        "async def main():\n"
        "    await stage.crew.start_part(stage.part())\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-c", killed, str(tmp_path)]
    await asyncio.to_thread(subprocess.run, command, check=False)
    process = psutil.Process(Stage(tmp_path).pid())

    assert leftover_processes.stop_parts(StateFolder(tmp_path)) == ["echo"]
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    assert leftover_processes.stop_parts(StateFolder(tmp_path)) == []


async def test_a_process_that_was_given_the_id_of_a_dead_part_is_left_alone(stage: Stage) -> None:
    (stage.state / "pids" / "echo").write_text(str(os.getpid()))

    assert leftover_processes.stop_parts(stage.state) == []


def test_two_stacks_never_share_a_state_folder(tmp_path: Path) -> None:
    with ExitStack() as first, ExitStack() as second:
        first.enter_context(StateFolder(tmp_path).lock())

        with pytest.raises(StackStartError, match=r"already running on"):
            second.enter_context(StateFolder(tmp_path).lock())


def test_a_port_that_is_taken_is_named() -> None:
    first = ports.free(4)
    with (
        socket.create_server(("127.0.0.1", first + 2)),
        pytest.raises(StackStartError, match=rf"port {first + 2} \(for blob\) is not available"),
    ):
        StackPorts.starting_at(first).require_free()


@pytest.mark.parametrize("port", [-1, 0, 65_533, 80_000])
def test_a_number_that_cannot_be_a_port_is_refused(port: int) -> None:
    with pytest.raises(StackStartError, match=f"PORT={port} is invalid"):
        StackPorts.starting_at(port).require_free()


def test_a_state_folder_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StackStartError, match=f"the state folder {path}"):
            StateFolder(path).lock().__enter__()


def test_vms_are_stopped_even_when_their_disks_were_removed(tmp_path: Path) -> None:
    def vm(state: Path) -> subprocess.Popen[bytes]:
        vm_folder = state / "azure" / "vms" / "one"
        marks = {VM_VARIABLE: "http://127.0.0.1:1/vm/x", "HOME": str(vm_folder)}
        return subprocess.Popen(["sleep", "600"], env=marks)

    own_vm, other_vm = vm(tmp_path / "ours"), vm(tmp_path / "other")

    assert leftover_processes.kill_vms(StateFolder(tmp_path / "ours")) == 1
    assert not psutil.pid_exists(own_vm.pid)
    assert psutil.pid_exists(other_vm.pid)
    assert leftover_processes.kill_vms(StateFolder(tmp_path / "other")) == 1
    assert [own_vm.wait(), other_vm.wait()] == [0, 0], "psutil has collected them"


def test_secrets_are_made_once_and_readable_by_the_owner_only(tmp_path: Path) -> None:
    state = StateFolder(tmp_path)
    secret = state.read_or_create_secret("secret")

    assert state.read_or_create_secret("secret") == secret
    assert (state / "secret").stat().st_mode & 0o777 == 0o600
