"""The agent of an Azure ML node, as a process of its own with a docker that is a shell script."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.emulated.azureml import agent
from tests.emulated.process import wait_for

# Knows one image, and runs `docker run --rm --entrypoint sh -e A=B ... IMAGE -c COMMAND`.
DOCKER = """#!/bin/bash
if [ "$1" = pull ]; then [ "$2" = known ] || { echo "no such image: $2" >&2; exit 1; }; exit 0; fi
shift 4
while [ "$1" = -e ]; do export "$2"; shift 2; done
shift
exec sh "$@"
"""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Path]:
    """Yield the folder of a VM with a running agent."""
    docker = tmp_path / "shims" / "docker"
    docker.parent.mkdir()
    docker.write_text(DOCKER)
    docker.chmod(0o755)
    command = [sys.executable, "-I", "-S", str(agent())]
    path = f"{docker.parent}:{os.defpath}"
    process = subprocess.Popen(command, cwd=tmp_path, env={"PATH": path})
    yield tmp_path
    process.kill()
    process.wait()


def order(node: Path, command: str, *environments: dict[str, str], image: str = "known") -> Path:
    """Order one process per environment; the order without its suffix."""
    rows: list[dict[str, Any]] = [
        {"log": str(node / f"log-{number}"), "environment": environment}
        for number, environment in enumerate(environments or ({},))
    ]
    file = node / "azureml" / "job-1.json"
    wait_for(file.parent.is_dir)
    fresh = file.with_suffix(".fresh")
    fresh.write_text(json.dumps({"image": image, "command": command, "processes": rows}))
    fresh.replace(file)
    return file.with_suffix("")


def code(task: Path) -> int:
    """Wait until the order is carried out and return its exit code."""
    done = task.with_suffix(".done")
    wait_for(done.exists)
    return int(done.read_text())


def test_when_one_process_fails_the_others_are_ended(node: Path) -> None:
    task = order(node, 'test "$RANK" = 1 && exit 7; exec sleep 1000', {"RANK": "0"}, {"RANK": "1"})

    assert code(task) == 7


def test_a_cancelled_order_is_asked_to_end(node: Path) -> None:
    task = order(node, "trap 'echo ending; exit 0' TERM; echo up; while :; do sleep 0.05; done")
    wait_for(lambda: (node / "log-0").exists() and (node / "log-0").read_text())
    task.with_suffix(".cancel").touch()

    assert code(task) != 0
    assert (node / "log-0").read_text().endswith("ending\n")


def test_an_order_is_carried_out_once(node: Path) -> None:
    task = order(node, "echo $$ >> ../../pids")
    assert code(task) == 0
    again = order(node, "echo $$ >> ../../pids").parent / "job-2.json"
    again.write_text(task.with_suffix(".json").read_text())

    assert code(again) == 0
    assert len((node / "pids").read_text().split()) == 2


def test_a_killed_order_has_no_time_to_end_and_leaves_nothing(node: Path) -> None:
    stubborn = "trap '' TERM; setsid sh -c 'echo $$ > untracked; exec sleep 1000' & echo up; wait"
    task = order(node, stubborn)
    wait_for(lambda: (task / "untracked").exists() and (task / "untracked").read_text())
    assert task.with_suffix(".begun").exists()
    task.with_suffix(".kill").touch()

    assert code(task) == -signal.SIGKILL
    assert not psutil.pid_exists(int((task / "untracked").read_text()))


def test_what_a_container_left_behind_ends_with_it(node: Path) -> None:
    task = order(node, "setsid sleep 1000 & echo $! > untracked")

    assert code(task) == 0
    assert not psutil.pid_exists(int((task / "untracked").read_text()))
