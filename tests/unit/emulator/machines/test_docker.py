"""The docker of an emulated VM."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.emulated.process import wait_for
from tests.emulated.vm import Vm

# Writes down its arguments and environment, then lives on.
PROBE = """
import json, os, sys, time
told = json.dumps({"args": sys.argv[1:], "env": dict(os.environ), "pid": os.getpid()})
open("probe.new", "w").write(told)
os.rename("probe.new", "probe.json")
time.sleep(1000)
"""
# Fails until it has been started three times.
FLAKY = """
import sys
with open("starts", "a+") as file:
    file.write("x"); file.seek(0)
    starts = len(file.read())
if starts < 3:
    sys.exit(1)
open("done", "w").close()
"""
IMAGES = {
    "rekindle/probe:1": {"command": [sys.executable, "-c", PROBE], "env": {"FROM": "image"}},
    "rekindle/flaky:1": {"command": [sys.executable, "-c", FLAKY]},
}


@pytest.fixture
def vm(tmp_path: Path) -> Iterator[Vm]:
    """Yield a VM and kill it after the test."""
    one = Vm(tmp_path / "vm")
    yield one
    one.kill()


def told(vm: Vm) -> dict[str, Any]:
    """Wait for the probe's file and return what the probe wrote to it."""
    wait_for((vm.folder / "probe.json").exists)
    return dict(json.loads((vm.folder / "probe.json").read_text()))


def code(vm: Vm, command: str) -> tuple[int, str]:
    """Exit code and console of one command."""
    vm.boot(f"{command}; echo exit $?", images=IMAGES)
    console = vm.folder / "console.log"
    wait_for(lambda: console.exists() and "ended with" in console.read_text())
    text = console.read_text()
    return int(text.rpartition("exit ")[2].split()[0]), text


def test_paths_of_a_container_become_paths_of_the_vm(vm: Vm) -> None:
    vm.boot(
        "docker run --rm -d --name probe --network host --gpus=all --shm-size 64g --ipc=host"
        " --ulimit memlock=-1 --restart=no -v /etc/rekindle:/config:ro -v /mnt/nvme:/scratch"
        " -e NODE=/config/node.json -e FROM=flag -e MODE=x/config rekindle/probe:1"
        " --cache /scratch/hf --node=/config/node.json /configuration",
        images=IMAGES,
    )
    probe, disk = told(vm), f"{vm.folder}/fs"

    assert probe["args"] == [
        *("--cache", f"{disk}/mnt/nvme/hf"),
        f"--node={disk}/etc/rekindle/node.json",
        "/configuration",
    ]
    assert probe["env"]["NODE"] == f"{disk}/etc/rekindle/node.json"
    assert probe["env"]["FROM"] == "flag"
    assert probe["env"]["MODE"] == "x/config"
    assert Path(disk, "mnt/nvme").is_dir()


def test_a_container_gets_little_of_the_outside(vm: Vm) -> None:
    vm.boot("SECRET=1 docker run -d rekindle/probe:1", images=IMAGES)
    given = told(vm)["env"]

    assert set(given) - {"LC_CTYPE"} == {"PATH", "HOME", "LANG", "REKINDLE_METADATA_URL", "FROM"}
    assert given["REKINDLE_METADATA_URL"] == vm.url
    assert given["HOME"] == str(vm.folder)
    assert str(vm.folder) not in given["PATH"]


def test_a_failing_container_is_started_again(vm: Vm) -> None:
    vm.boot("docker run -d --restart on-failure rekindle/flaky:1", images=IMAGES)

    wait_for((vm.folder / "done").exists)
    assert _starts(vm) == "xxx"


def test_an_environment_file_of_the_vm_is_read(vm: Vm) -> None:
    vm.boot(
        "mkdir -p fs/etc; printf '# no\\nA=1\\nB=/etc/b\\n' > fs/etc/env",
        "docker run -d --env-file /etc/env -v /etc:/etc -e A=2 rekindle/probe:1",
        images=IMAGES,
    )
    given = told(vm)["env"]

    assert (given["A"], given["B"]) == ("2", f"{vm.folder}/fs/etc/b")


def test_the_entrypoint_can_be_replaced(vm: Vm) -> None:
    assert code(vm, "docker run --rm --entrypoint /bin/sh rekindle/probe:1 -c 'exit 7'")[0] == 7


@pytest.mark.parametrize(
    ("command", "exit_code", "message"),
    [
        ("docker run nobody/nothing:9", 125, "Unable to find image 'nobody/nothing:9' locally"),
        ("docker run --privileged rekindle/probe:1", 125, "unknown flag: --privileged"),
        ("docker run --rm", 125, "requires at least 1 argument"),
        ("docker pull nobody/nothing:9", 1, "manifest unknown"),
        ("docker pull rekindle/probe:1", 0, "up to date"),
        ("docker compose up", 1, "only 'run', 'pull' and 'image inspect'"),
        ("systemctl start docker", 0, ""),
        ("mkfs.ext4 /dev/sda && lsblk && reboot", 0, ""),
    ],
)
def test_docker_says_what_it_cannot_do(vm: Vm, command: str, exit_code: int, message: str) -> None:
    found, console = code(vm, command)

    assert found == exit_code
    assert message in console


def _starts(vm: Vm) -> str:
    file = vm.folder / "starts"
    return file.read_text() if file.exists() else ""
