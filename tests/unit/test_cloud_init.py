"""The text that boots every node, in Azure and on the emulator."""

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from service.cloud.cloud_init import render

CONFIG = '{"attempt_id":"att-1","note":"quotes \' and \\" and $HOME"}'
IMAGE = "registry.example/rekindle/trainer:1.0"


@pytest.fixture(params=["cuda", "cpu"])
def document(request: pytest.FixtureRequest) -> dict[str, Any]:
    text = render(CONFIG, IMAGE, request.param)
    assert text.startswith("#cloud-config\n")
    parsed: dict[str, Any] = yaml.safe_load(text)
    return parsed


def test_the_configuration_is_readable_by_root_alone(document: dict[str, Any]) -> None:
    (file,) = document["write_files"]

    assert (file["path"], file["permissions"]) == ("/etc/rekindle/node.json", "0600")
    assert json.loads(file["content"]) == json.loads(CONFIG)


def test_the_container_finds_its_configuration_and_its_disk(document: dict[str, Any]) -> None:
    words = _docker_run(document)

    assert "/etc/rekindle:/etc/rekindle:ro" in words
    assert "/mnt/rekindle:/var/lib/rekindle" in words
    assert "REKINDLE_NODE_CONFIG=/etc/rekindle/node.json" in words
    assert "REKINDLE_WORK_DIR=/var/lib/rekindle" in words
    assert words[-1] == IMAGE


def test_only_a_gpu_node_asks_for_gpus_and_touches_disks() -> None:
    cuda = yaml.safe_load(render(CONFIG, IMAGE, "cuda"))
    cpu = yaml.safe_load(render(CONFIG, IMAGE, "cpu"))

    assert "--gpus" in _docker_run(cuda)
    assert "--gpus" not in _docker_run(cpu)
    assert "mkfs" not in json.dumps(cpu)


def test_every_command_is_one_that_a_shell_can_read(document: dict[str, Any]) -> None:
    for program, option, script in document["runcmd"]:
        assert (program, option) == ("sh", "-c")
        subprocess.run(["sh", "-n", "-c", script], check=True, timeout=10)


def test_only_blank_disks_of_azures_model_are_made_into_one(tmp_path: Path) -> None:
    """/dev/nvme1n1 has a partition, /dev/nvme2n1 a file system, /dev/sda is another model."""
    said = _boot_disks(
        tmp_path,
        lsblk="""\
            if [ "$1" = -dnpo ]; then
              for n in 0 1 2 3; do echo "/dev/nvme${n}n1 Microsoft NVMe Direct Disk v2"; done
              echo '/dev/sda Virtual Disk'
            else
              echo disk; [ "$3" != /dev/nvme1n1 ] || echo part
            fi""",
        blkid='[ "$2" = /dev/nvme2n1 ]',
    )

    assert said[0] == (
        "mdadm --create /dev/md/rekindle --run --level 0 --raid-devices 2 /dev/nvme0n1 /dev/nvme3n1"
    )
    assert said[1] == "mkfs.ext4 -q -L rekindle -E nodiscard /dev/md/rekindle"


def test_without_a_local_disk_nothing_is_formatted(tmp_path: Path) -> None:
    assert _boot_disks(tmp_path, lsblk="echo '/dev/sda Virtual Disk'", blkid="false") == []


def _docker_run(document: dict[str, Any]) -> list[str]:
    return shlex.split(document["runcmd"][-1][2])


def _boot_disks(folder: Path, **programs: str) -> list[str]:
    """Run the disk commands with programs that only say how they were called; mkdir fails."""
    log = folder / "said"
    log.touch()
    for name in ("mdadm", "mkfs.ext4"):
        programs[name] = f'echo "{name} $*" >>{log}'
    programs["mkdir"] = "exit 1"  # and with it all that would follow on this machine
    for name, line in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{line}\n")
        (folder / name).chmod(0o755)
    script = yaml.safe_load(render(CONFIG, IMAGE, "cuda"))["runcmd"][0][2]
    path = f"{folder}:/usr/bin:/bin"
    subprocess.run(["sh", "-c", script], env={"PATH": path}, check=False, timeout=10)
    return log.read_text().splitlines()
