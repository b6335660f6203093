"""The text that boots every node, in Azure and on the emulator."""

import json
import re
import shlex
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from service.cloud import boot_report
from service.cloud.boot_report import SCRIPT_PATH as REPORT_PATH
from service.cloud.cloud_init import PROCESSES, TIMES_PATH, WORK_PATH, XIDS_UNIT, render
from service.cloud.node_firewall import SCRIPT_PATH, UNIT_PATH
from tests.emulated.process import wait_for
from trainer.supervisor.machine.boot_times import START_SUPERVISOR, TIMES, read_boot_spans

CONFIG = '{"attempt_id":"att-1","note":"quotes \' and \\" and $HOME"}'
IMAGE = "registry.example/rekindle/trainer:1.0"


@pytest.fixture(params=["cuda", "cpu"])
def document(request: pytest.FixtureRequest) -> dict[str, Any]:
    text = render(CONFIG, IMAGE, request.param)
    assert text.startswith("#cloud-config\n")
    parsed: dict[str, Any] = yaml.safe_load(text)
    return parsed


def test_what_is_written_may_be_read_by_one_user_alone(document: dict[str, Any]) -> None:
    file, times, report, *firewall = document["write_files"][:5]

    assert (file["path"], file["permissions"]) == ("/etc/rekindle/node.json", "0600")
    assert (times["path"], times["permissions"]) == (TIMES_PATH, "0600")
    assert times["content"] == ""
    assert report["path"] == REPORT_PATH
    assert json.loads(file["content"]) == json.loads(CONFIG)
    assert {entry["path"] for entry in firewall} == {SCRIPT_PATH, UNIT_PATH}


def test_files_and_disk_are_handed_to_the_containers_user_before_it_starts(
    document: dict[str, Any], tmp_path: Path
) -> None:
    """By number: cloud-init's own `owner` wants a name, and the VM has none for it."""
    for program in ("chown", "install"):
        (tmp_path / program).write_text('#!/bin/sh\necho "${0##*/} $*"\n')
        (tmp_path / program).chmod(0o755)
    *_, hand_over, start = (script for _, _, script in document["runcmd"])
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    result = subprocess.run(
        ["sh", "-c", hand_over], env=path, capture_output=True, text=True, timeout=120, check=True
    )

    assert result.stdout.splitlines() == [
        "chown 10001:10001 /etc/rekindle/node.json /etc/rekindle/boot-times",
        "install -d -m 0700 -o 10001 -g 10001 /mnt/rekindle",
    ]
    assert start.index("systemctl enable --now rekindle-firewall.service") < start.index(
        "docker run "
    )


def test_a_machine_whose_firewall_cannot_be_had_runs_no_container(tmp_path: Path) -> None:
    lines = {"systemctl": "exit 1", "docker": f"touch {tmp_path}/began", "sleep": "exit 0"}
    for name, line in lines.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    start = yaml.safe_load(render(CONFIG, IMAGE, "cpu"))["runcmd"][-1]
    subprocess.run(start, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, check=False, timeout=60)

    assert not (tmp_path / "began").exists()


def test_every_command_is_one_that_a_shell_can_read(document: dict[str, Any]) -> None:
    for program, option, script in document["runcmd"]:
        assert (program, option) == ("sh", "-c")
        subprocess.run(["sh", "-n", "-c", script], check=True, timeout=120)


def test_the_container_has_no_rights_and_writes_to_its_folders_alone(
    document: dict[str, Any],
) -> None:
    arguments = _docker_run(document)
    pairs = set(pairwise(arguments))
    writable = [b for a, b in pairs if a == "--volume" and not b.endswith(":ro")]

    assert "--read-only" in arguments
    assert {"/etc/rekindle:/etc/rekindle:ro", "REKINDLE_NODE_CONFIG=/etc/rekindle/node.json"} <= {
        *arguments
    }
    assert {"REKINDLE_WORK_DIR=/var/lib/rekindle", "REKINDLE_MEMORY_DIR=/dev/shm/rekindle"} <= {
        *arguments
    }
    assert arguments[-1] == IMAGE
    assert {("--cap-drop", "ALL"), ("--security-opt", "no-new-privileges")} <= pairs
    assert ("--pids-limit", str(PROCESSES)) in pairs
    assert ("--volume", "/run/rekindle:/run/rekindle:ro") in pairs
    assert sorted(writable) == ["/dev/shm:/dev/shm", f"{WORK_PATH}:/var/lib/rekindle"]


def test_a_gpu_node_gives_the_container_what_its_image_knows_of_the_topology() -> None:
    run = yaml.safe_load(render(CONFIG, IMAGE, "cuda"))["runcmd"][-1][2]

    assert "$(test -f /etc/nccl.conf && echo --volume=/etc/nccl.conf:/etc/nccl.conf:ro)" in run
    assert "$(test -d /opt/microsoft && echo --volume=/opt/microsoft:/opt/microsoft:ro)" in run


def test_only_a_gpu_node_asks_for_gpus_and_touches_disks() -> None:
    cuda = yaml.safe_load(render(CONFIG, IMAGE, "cuda"))
    cpu = yaml.safe_load(render(CONFIG, IMAGE, "cpu"))

    assert "--gpus" in _docker_run(cuda)
    assert "--gpus" not in _docker_run(cpu)
    assert "mkfs" not in json.dumps(cpu)


def test_a_gpu_node_keeps_what_its_driver_reported_of_gpus_where_the_container_reads_it(
    tmp_path: Path,
) -> None:
    cuda = yaml.safe_load(render(CONFIG, IMAGE, "cuda"))
    scripts = [s for _, _, s in cuda["runcmd"]]
    (tmp_path / "dmesg").write_text("#!/bin/sh\nprintf '%s\\n' 'NVRM: Xid (a): 79' usb\n")
    (tmp_path / "dmesg").chmod(0o755)
    unit = cuda["write_files"][-1]
    command = re.search(r'ExecStart=/bin/sh -c "(.+)"', unit["content"])
    assert command
    script = command[1].replace("/etc/rekindle", str(tmp_path))
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    subprocess.run(["sh", "-c", script], env=path, timeout=120, check=True)

    assert scripts[1] == f"systemctl enable --now {XIDS_UNIT}"
    assert unit["path"] == f"/etc/systemd/system/{XIDS_UNIT}"
    assert (tmp_path / "xids").read_text() == "NVRM: Xid (a): 79\n"
    assert "--volume /etc/rekindle:/etc/rekindle:ro" in scripts[-1]
    assert "dmesg" not in render(CONFIG, IMAGE, "cpu")


def test_only_blank_disks_of_azures_model_are_made_into_one(tmp_path: Path) -> None:
    """/dev/nvme1n1 has a partition, /dev/nvme2n1 a file system, /dev/sda is another model."""
    commands = _boot_disks(
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

    assert commands[0] == (
        "mdadm --create /dev/md/rekindle --run --level 0 --raid-devices 2 /dev/nvme0n1 /dev/nvme3n1"
    )
    assert commands[1] == "mkfs.ext4 -q -L rekindle -E nodiscard /dev/md/rekindle"


def test_without_a_local_disk_nothing_is_formatted(tmp_path: Path) -> None:
    assert _boot_disks(tmp_path, lsblk="echo '/dev/sda Virtual Disk'", blkid="false") == []


def test_an_image_that_is_there_is_not_pulled(tmp_path: Path) -> None:
    log = tmp_path / "said"
    _prepare(tmp_path, "cpu", docker=f'echo "$1 $2" >>{log}')

    assert log.read_text().splitlines() == ["image inspect"]


def test_a_registry_that_fails_is_asked_again(tmp_path: Path) -> None:
    log = tmp_path / "said"
    docker = f"""[ "$1" = pull ] || exit 1
        echo pull >>{log}; [ "$(wc -l <{log})" -eq 3 ]"""
    _prepare(tmp_path, "cpu", docker=docker, sleep="exit 0")

    assert log.read_text().splitlines() == ["pull"] * 3


def test_the_nodes_identity_signs_in_to_an_azure_registry(tmp_path: Path) -> None:
    commands = _pull_from_azure(tmp_path)

    assert commands[0].startswith("curl -sS --max-time 20 -H Metadata:true http://169.254.169.254/")
    assert commands[0].endswith(
        "token?api-version=2018-02-01&resource=https://management.azure.com/"
    )
    assert commands[1:] == [
        "curl -sS --max-time 20 https://mine.azurecr.io/oauth2/exchange -d grant_type=access_token"
        " -d service=mine.azurecr.io --data-urlencode access_token@- < of-arm",
        "docker login mine.azurecr.io --username 00000000-0000-0000-0000-000000000000"
        " --password-stdin < of-registry",
        "docker pull --quiet mine.azurecr.io/trainer:1",
    ]


def test_the_identity_that_pulls_is_named_to_a_machine_with_several(tmp_path: Path) -> None:
    """Azure policies add others; then Azure's metadata service asks which one is meant."""
    commands = _pull_from_azure(tmp_path, identity="/subscriptions/s/identities/node")

    assert commands[0].endswith("azure.com/&msi_res_id=/subscriptions/s/identities/node")


def test_an_image_that_needs_no_sign_in_is_pulled_without_one(tmp_path: Path) -> None:
    """Where there is no identity, too: the registry may be open to everybody."""
    commands = _pull_from_azure(tmp_path, curl="exit 7", login="exit 1")

    assert commands == ["docker pull --quiet mine.azurecr.io/trainer:1"]
    assert "login" not in render(CONFIG, IMAGE, "cpu")


def test_a_pull_that_fails_ten_times_is_told_each_time_with_all_that_docker_said(
    tmp_path: Path,
) -> None:
    log = tmp_path / "said"
    _prepare(
        tmp_path,
        "cpu",
        docker='[ "$1" = pull ] && echo "manifest unknown: $1\nsee help"; exit 1',
        sleep="exit 0",
        report=f'echo "$2 $3 $(echo "$4" | grep -c "manifest unknown: pull see help")" >>{log}',
    )

    tries = [f"pull_image failed {n}" for n in range(1, 10)]
    assert log.read_text().splitlines() == ["pull_image begun 0", *tries, "pull_image gave_up 10"]


def test_a_report_goes_to_the_service_with_a_token_that_no_process_list_shows(
    tmp_path: Path,
) -> None:
    log = tmp_path / "said"
    config = {"attempt_id": "att-1", "bootstrap_token": "secret", "service_url": "https://s"}
    (tmp_path / "node.json").write_text(json.dumps(config, sort_keys=True, separators=(",", ":")))
    (tmp_path / "curl").write_text(
        f"""#!/bin/sh
        case $* in
          *compute/name*) echo rk-1_0 ;;
          *) {{ echo "$*"; cat; }} >{log}.new; mv {log}.new {log} ;;
        esac"""
    )
    (tmp_path / "curl").chmod(0o755)
    script = boot_report.file()["content"]
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    command = ["sh", "-c", script, "sh", f"{tmp_path}/node.json", "pull_image", "failed", "@denied"]
    result = subprocess.run(
        command, env=path, check=True, capture_output=True, text=True, timeout=60
    )
    wait_for(log.exists)
    arguments, header = log.read_text().splitlines()

    assert result.stderr.splitlines() == ["rekindle: pull_image failed", "@denied"]
    assert arguments.endswith(
        "-H @- -H Content-Type: text/plain --data-raw @denied"
        " https://s/internal/boots/att-1?phase=pull_image&said=failed&machine=rk-1_0"
    )
    assert header == "Authorization: Bearer secret"
    assert "secret" not in arguments


def test_the_image_comes_while_the_driver_gets_ready(tmp_path: Path) -> None:
    """The driver is there once the pull has begun: one after the other would never end."""
    begun = tmp_path / "begun"
    times = _prepare(
        tmp_path,
        "cuda",
        docker=f'[ "$1" = pull ] && touch {begun}',
        lsblk="exit 0",
        **{"nvidia-smi": f"[ -e {begun} ]", "sleep": "exec /bin/sleep 0.05"},
    )
    spans, started_at = read_boot_spans(times, 0.0, is_restart=False)

    names = {s.name for s in spans}
    assert names == {"vm_boot", "pull_image", "mount_disks", "await_driver"}
    assert started_at >= max(s.ended_at for s in spans)


def test_a_boot_is_timed_without_gaps(tmp_path: Path) -> None:
    """Also where cloud-init and supervisor are of different parts: they agree on a file."""
    times = _prepare(tmp_path, "cpu", docker="exit 0")
    spans, started_at = read_boot_spans(times, 0.0, is_restart=False)
    vm_boot, pull = spans

    assert TIMES_PATH.endswith(f"/{TIMES}")
    assert (vm_boot.name, pull.name) == ("vm_boot", "pull_image")
    assert vm_boot.ended_at == pull.started_at <= pull.ended_at <= started_at
    assert started_at - pull.ended_at < 1.0
    assert times.read_text().splitlines()[-1].startswith(START_SUPERVISOR)


def test_a_supervisor_that_starts_again_counts_from_its_own_start(tmp_path: Path) -> None:
    times = _prepare(tmp_path, "cpu", docker="exit 0")

    assert read_boot_spans(times, 7.0, is_restart=True)[1] == 7.0


def test_a_boot_that_left_no_notes_is_no_reason_not_to_start(tmp_path: Path) -> None:
    torn = tmp_path / TIMES
    torn.write_text("vm_boot  \npull_image a b\n\nlate 9 3\n")

    assert read_boot_spans(tmp_path / "nothing", 7.0, is_restart=False) == ((), 7.0)
    assert read_boot_spans(torn, 7.0, is_restart=False) == ((), 7.0)


def _docker_run(document: dict[str, Any]) -> list[str]:
    command = document["runcmd"][-1][2].partition("out=$(docker")[2].partition(" 2>&1)")[0]
    return shlex.split(command)


def _boot_disks(folder: Path, **programs: str) -> list[str]:
    """Run the disk commands with programs that only say how they were called; mkdir fails."""
    log = folder / "said"
    log.touch()
    for name in ("mdadm", "mkfs.ext4"):
        programs[name] = f'echo "{name} $*" >>{log}'
    programs["mkdir"] = "exit 1"  # and with it all that would follow on this machine
    _prepare(folder, "cuda", docker="exit 0", **programs)
    return log.read_text().splitlines()


def _pull_from_azure(
    folder: Path, curl: str = "", login: str = "", identity: str = ""
) -> list[str]:
    """Pull an image from an Azure registry; return the calls made, with their piped input."""
    log = folder / "said"
    note = f'echo "${{0##*/}} $*$(input)" >>{log}'
    piped = 'input() { read -r word || [ "$word" ] && echo " < $word"; }\n'
    answers = """
        case $* in
          *oauth2/exchange*) echo '{"refresh_token":"of-registry"}' ;;
          *) echo '{"access_token":"of-arm","client_id":"c","expires_in":"86400"}' ;;
        esac"""
    _prepare(
        folder,
        "cpu",
        image="mine.azurecr.io/trainer:1",
        identity=identity,
        curl=curl
        or piped + note.replace("$(input)", "$(case $* in *@-*) input ;; esac)") + answers,
        docker=f"""{piped}
            case $1 in
              login) {login or note} ;;
              pull) {note.replace("$(input)", "")} ;;
              *) exit 1 ;;
            esac""",
    )
    return log.read_text().splitlines()


def _prepare(
    folder: Path, accelerator: str, image: str = IMAGE, identity: str = "", **programs: str
) -> Path:
    """Run what comes before the supervisor's start, with programs that do as told; its notes."""
    for name, line in (
        {"nvidia-smi": "exit 0", "uptime": "echo 2026-11-20 21:00:00", "report": "exit 0"}
        | programs
    ).items():
        (folder / name).write_text(f"#!/bin/sh\n{line}\n")
        (folder / name).chmod(0o755)
    script = yaml.safe_load(render(CONFIG, image, accelerator, identity))["runcmd"][0][2]
    times = folder / TIMES
    script = script.replace(TIMES_PATH, str(times)).replace(REPORT_PATH, "report")
    path = f"{folder}:/usr/bin:/bin"
    subprocess.run(["sh", "-c", script], env={"PATH": path}, check=False, timeout=120)
    return times
