"""The health check of a node's container."""

import os
import subprocess
import sys
from pathlib import Path

from trainer.supervisor.machine import liveness


def test_a_supervisor_that_shows_itself_is_alive(tmp_path: Path) -> None:
    liveness.touch_liveness_file(tmp_path)
    shown = (tmp_path / "alive").stat().st_mtime

    assert liveness.is_alive(tmp_path, shown + liveness.BEAT_SECONDS)
    assert not liveness.is_alive(tmp_path, shown + liveness.TIMEOUT_SECONDS)


def test_a_supervisor_that_never_showed_itself_is_not_alive(tmp_path: Path) -> None:
    assert not liveness.is_alive(tmp_path, 0.0)


def test_the_check_says_it_by_its_exit_code(tmp_path: Path) -> None:
    liveness.touch_liveness_file(tmp_path)
    young = _check(tmp_path)
    os.utime(tmp_path / "alive", (0, 0))
    old = _check(tmp_path)

    assert (young.returncode, young.stdout) == (0, "alive\n")
    assert (old.returncode, old.stdout) == (1, "no sign of life for 30 s\n")


def _check(work: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "trainer.supervisor.machine.liveness", str(work)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
