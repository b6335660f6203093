"""A machine is looked at before its node joins, and after its trainer has failed."""

from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.nodes.supervised import Scene
from tests.unit.trainer.supervisor.test_gpu_report import GPU, H100, report
from trainer.contract import ExpectedHardware, GpuErrors, NodePhase
from trainer.supervisor.machine.health import MOST_FAULTS, GpuReading, HealthCheck

ALONE = replace(H100, nvlink_gbytes=0, infiniband_gbps=0)
BROKEN = GPU.replace("failure>No", "failure>Yes")


def write_nvidia_smi(folder: Path, text: str, last_command: str = "") -> Path:
    """Write an nvidia-smi that prints this, and a command to end with."""
    (folder / "report.xml").write_text(text)
    smi = folder / "nvidia-smi"
    smi.write_text(f'#!/bin/sh\n[ "$1" = nvlink ] || cat {folder}/report.xml\n{last_command}\n')
    smi.chmod(0o755)
    return smi


def check_of(
    folder: Path, smi: Path, expected: ExpectedHardware = ALONE, patience: float = 30.0
) -> HealthCheck:
    """Return a check that finds everything in a folder, and does not wait for ports."""

    async def at_once(_: float) -> None:
        return

    return HealthCheck(
        expected=expected,
        smi=str(smi),
        patience=patience,
        infiniband=folder / "infiniband",
        xids=folder / "xids",
        port_tries=2,
        sleep=at_once,
    )


async def test_a_healthy_machine_has_no_faults(tmp_path: Path) -> None:
    assert (
        await check_of(tmp_path, write_nvidia_smi(tmp_path, report(GPU, GPU))).find_faults() == ""
    )


async def test_without_gpus_nothing_is_looked_at() -> None:
    assert await HealthCheck(smi="/nowhere").find_faults() == ""


async def test_a_machine_without_nvidia_smi_is_unhealthy_in_plain_words(tmp_path: Path) -> None:
    assert await check_of(tmp_path, tmp_path / "nvidia-smi").find_faults() == (
        "nvidia-smi -q -x cannot be run, so no GPU can be used: No such file or directory"
    )


@pytest.mark.parametrize(
    ("text", "last_command", "fault"),
    [
        ("", "exit 9", "nvidia-smi -q -x failed with status 9: the NVIDIA driver is not loaded"),
        (
            "a\nUnable to determine the device handle for GPU0001:00:00.0: Unknown Error\n",
            "exit 255",
            "nvidia-smi -q -x failed with status 255: Unable to determine the device handle for"
            " GPU0001:00:00.0: Unknown Error",
        ),
        ("", "exit 1", "nvidia-smi -q -x failed with status 1: no reason given"),
        ("\0\xff", "", "the report of nvidia-smi is no XML: "),
        ("", "exec head -c 10000000 /dev/zero", "nvidia-smi -q -x printed more than 4 MiB"),
    ],
)
async def test_an_nvidia_smi_that_fails_or_says_rubbish_is_a_fault(
    tmp_path: Path, text: str, last_command: str, fault: str
) -> None:
    faults = await check_of(tmp_path, write_nvidia_smi(tmp_path, text, last_command)).find_faults()

    assert faults.startswith(fault)


async def test_one_probe_that_fails_on_a_busy_machine_is_no_fault(tmp_path: Path) -> None:
    mark = tmp_path / "again"
    smi = write_nvidia_smi(
        tmp_path, report(GPU, GPU), f"[ -e {mark} ] || {{ touch {mark}; exit 1; }}"
    )

    assert await check_of(tmp_path, smi).find_faults() == ""
    assert mark.exists()


async def test_an_nvidia_smi_that_hangs_is_killed_and_is_a_fault(tmp_path: Path) -> None:
    smi = write_nvidia_smi(tmp_path, "", f"echo $$ >{tmp_path}/pid; exec sleep 600")
    faults = await check_of(tmp_path, smi, patience=0.3).find_faults()

    assert faults == "nvidia-smi -q -x did not answer within 0 s"
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


async def test_inactive_links_and_driver_errors_are_faults(tmp_path: Path) -> None:
    line = "echo 'GPU 0: NVIDIA H100'; echo ' Link 3: <inactive>'"
    smi = write_nvidia_smi(tmp_path, report(GPU, GPU), f'[ "$1" != nvlink ] || {{ {line}; }}')
    (tmp_path / "xids").write_text("NVRM: Xid (PCI:0001:00:00): 79, GPU has fallen off the bus\n")
    faults = await check_of(tmp_path, smi, replace(ALONE, nvlink_gbytes=460)).find_faults()

    assert faults == (
        "GPU 0: 1 NVLink links are inactive;"
        " the driver reported Xid 79 of the GPU at PCI:0001:00:00"
    )


def lay_port(folder: Path, device: str, **attributes: str) -> None:
    """Write the files in which the kernel shows an InfiniBand port."""
    port = folder / "infiniband" / device / "ports" / "1"
    port.mkdir(parents=True)
    defaults = {"link_layer": "InfiniBand", "state": "4: ACTIVE", "rate": "400 Gb/sec (4X NDR)"}
    for name, text in (defaults | attributes).items():
        (port / name).write_text(f"{text}\n")


@pytest.mark.parametrize(
    "second",
    [
        {"state": "1: DOWN"},
        {"rate": "200 Gb/sec (4X HDR)"},
        {"link_layer": "Ethernet"},
        {"rate": "garbage"},
    ],
)
async def test_infiniband_that_is_down_slow_or_missing_is_a_fault(
    tmp_path: Path, second: dict[str, str]
) -> None:
    lay_port(tmp_path, "mlx5_ib0")
    lay_port(tmp_path, "mlx5_ib1", **second)
    check = check_of(
        tmp_path, write_nvidia_smi(tmp_path, report(GPU, GPU)), replace(ALONE, infiniband_gbps=400)
    )
    faults = await check.find_faults()

    assert faults == "1 of 2 InfiniBand ports are active at 400 Gb/s"


async def test_ports_that_come_up_late_are_waited_for(tmp_path: Path) -> None:
    async def come_up(_: float) -> None:
        for number in range(2):
            lay_port(tmp_path, f"mlx5_ib{number}")

    smi = write_nvidia_smi(tmp_path, report(GPU, GPU))
    check = check_of(tmp_path, smi, replace(ALONE, infiniband_gbps=400))

    assert await replace(check, sleep=come_up).find_faults() == ""


async def test_only_the_first_of_many_faults_are_named(tmp_path: Path) -> None:
    smi = write_nvidia_smi(tmp_path, report(*[BROKEN] * 9))
    faults = (await check_of(tmp_path, smi, replace(ALONE, gpus=9)).find_faults()).split("; ")

    assert len(faults) == MOST_FAULTS + 1
    assert faults[-1] == "and 4 more"


async def test_a_gpu_that_broke_in_training_is_reported_with_the_failure_of_the_trainer(
    scene: Scene, tmp_path: Path
) -> None:
    scene.health = check_of(tmp_path, write_nvidia_smi(tmp_path, report(GPU, GPU)))
    scene.modes["one"] = "non_retryable"  # a GPU that computes rubbish causes errors of any kind
    node = scene.service.add("one")
    scene.start(node)
    await scene.until(lambda: node.heartbeats)
    write_nvidia_smi(tmp_path, report(GPU, BROKEN))
    await scene.generation(node)
    await scene.until(lambda: node.has_reported(NodePhase.FAILED, 1))

    assert node.heartbeats[0].unhealthy == ""
    assert node.last_heartbeat.unhealthy.endswith("a row of its memory could not be remapped")
    assert not node.last_heartbeat.non_retryable


async def test_an_unhealthy_machine_says_so_with_its_first_heartbeat(
    scene: Scene, tmp_path: Path
) -> None:
    scene.health = check_of(tmp_path, write_nvidia_smi(tmp_path, report(GPU, BROKEN)))
    node = scene.service.add("one")
    scene.start(node)
    await scene.until(lambda: node.heartbeats)

    assert node.heartbeats[0].unhealthy.endswith("a row of its memory could not be remapped")


async def test_a_rank_that_finds_its_machine_slow_has_it_replaced(scene: Scene) -> None:
    scene.modes["one"] = "slow links"
    node = scene.service.add("one")
    scene.start(node)
    await scene.generation(node)
    await scene.until(lambda: node.has_reported(NodePhase.FAILED, 1))

    assert node.last_heartbeat.unhealthy == "all-reduce reaches 9 GB/s"


async def test_errors_of_a_broken_gpu_are_reported_before_its_machine_is_deleted(
    scene: Scene, tmp_path: Path
) -> None:
    scene.health = check_of(tmp_path, write_nvidia_smi(tmp_path, report(GPU, GPU)))
    scene.modes["one"] = "non_retryable"
    node = scene.service.add("one")
    scene.start(node)
    await scene.until(lambda: any(h.gpus for h in node.heartbeats))
    (tmp_path / "xids").write_text("NVRM: Xid (PCI:0001:00:00): 48, DBE\n")
    write_nvidia_smi(
        tmp_path, report(GPU, GPU.replace("dram_uncorrectable>0", "dram_uncorrectable>4", 1))
    )
    await scene.generation(node)
    await scene.until(lambda: any(h.gpu_errors for h in node.heartbeats))

    errors = [h.gpu_errors for h in node.heartbeats if h.gpu_errors]
    assert errors == [GpuErrors(uncorrected=4, fatal_xids=1)]


async def test_a_driver_that_does_not_answer_says_no_load_and_breaks_nothing(
    tmp_path: Path,
) -> None:
    silent_check = check_of(tmp_path, write_nvidia_smi(tmp_path, "", last_command="exit 9"))
    healthy_check = check_of(tmp_path, write_nvidia_smi(tmp_path, report(GPU, GPU)))

    assert len((await healthy_check.read_gpus()).loads) == 2
    assert await replace(silent_check, smi="/nowhere").read_gpus() == GpuReading()
    assert await HealthCheck().read_gpus() == GpuReading()
