"""An emulator that is killed and started again loses, doubles and leaks nothing."""

import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emulated.process import (
    BOOT,
    GROUP,
    Emulator,
    begin,
    child,
    compute,
    descendants,
    pause,
    remove,
    runs,
    scale_set,
    set_url,
    wait_for,
)


def test_an_emulator_without_its_folder_ends(restartable: Emulator) -> None:
    restartable.state.rename(restartable.state.with_name("elsewhere"))

    assert restartable.wait() == 1
    restartable.state.with_name("elsewhere").rename(restartable.state)
    restartable.start()


def test_two_emulators_do_not_share_a_folder(restartable: Emulator) -> None:
    options = ("--state", str(restartable.state), "--arm-port", "0", "--metadata-port", "0")
    command = [sys.executable, "-m", "emulator", *options]
    second = subprocess.run(command, capture_output=True, check=False, text=True, timeout=60)

    assert second.returncode == 1
    assert second.stderr.startswith("emulator: another emulator (process")


@pytest.fixture
def restartable(tmp_path: Path) -> Iterator[Emulator]:
    """Yield an emulator that the test may kill."""
    running = Emulator(tmp_path / "azure", "--create-seconds", "1", "--delete-seconds", "1")
    running.make_group()
    yield running
    running.destroy()


async def test_a_killed_emulator_finishes_what_it_had_accepted(restartable: Emulator) -> None:
    async with compute(restartable) as client:
        sets = client.virtual_machine_scale_sets
        creation = await begin(client, "rk-on", scale_set(1, BOOT))
        restartable.stop(signal.SIGKILL)
        restartable.start()
        await creation.result()

        (before,) = restartable.machines("rk-on")
        pid = child(before)
        assert restartable.stop() == 0
        assert runs(pid)
        restartable.start()
        (after,) = restartable.machines("rk-on")
        assert after == before

        await sets.begin_delete(GROUP, "rk-on", polling=False)
        restartable.stop(signal.SIGKILL)
        restartable.start()
        await remove(client, "rk-on")
        assert not runs(pid)


@pytest.mark.slow
def test_however_often_it_is_killed_no_vm_is_doubled_or_left(restartable: Emulator) -> None:
    rng = random.Random(7)
    for number in range(4):
        url = set_url(f"rk-{number}")
        with restartable.signed_in() as client:
            client.put(url, json=scale_set(2, BOOT))
        pause(rng.uniform(0.8, 1.2))  # around allocation and boot
        restartable.stop(signal.SIGKILL)
        restartable.start()
        with restartable.signed_in() as client:
            client.delete(url)
        pause(rng.uniform(0.8, 1.2))  # around the kill
        restartable.stop(signal.SIGKILL)
        restartable.start()

    wait_for(lambda: not restartable.virtual_machines())
    consoles = [file.read_text() for file in restartable.state.glob("vms/*/console.log")]
    assert max(text.count("the boot script ended") for text in consoles) <= 1
    assert not descendants(restartable.metadata_url)
