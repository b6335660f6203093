"""VMs as process trees, and their docker: nothing of a killed VM may live on."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from emulator.faults.slow_disk import descendants as children_of
from emulator.machines.processes import alive, init_pid
from tests.emulated.process import descendants, runs, wait_for
from tests.emulated.vm import Vm

# Forks twice with a session of its own, so that its parent is gone when it writes its number.
DAEMON = """
import os, sys, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
open(sys.argv[1], "w").write(f"{os.getpid()}\\n")
time.sleep(1000)
"""
# Every process of the chain lives some milliseconds and hands on to the next one. It ends by
# itself: a chain that escaped once took a machine's cores for an hour.
RUNNER = """
import os, sys, time
end = time.time() + 60
while time.time() < end:
    with open(sys.argv[1], "w") as file: file.write(f"{os.getpid()}\\n")
    if os.fork(): os._exit(0)
    os.setsid()
    time.sleep(0.003)
"""


@pytest.fixture
def vm(tmp_path: Path) -> Iterator[Vm]:
    """Yield a VM and kill it after the test."""
    machine = Vm(tmp_path / "vm")
    yield machine
    machine.kill()


def python(program: str, *args: str) -> str:
    """Return a shell command that runs a Python program."""
    return subprocess.list2cmdline([sys.executable, "-c"]) + f" '{program}' {' '.join(args)}"


def test_a_daemon_in_a_session_of_its_own_dies_with_its_vm(vm: Vm) -> None:
    vm.boot(python(DAEMON, "daemon.pid"))
    daemon, init = vm.number("daemon.pid"), init_pid(vm.folder)
    assert init
    assert os.getsid(daemon) != os.getsid(init)

    vm.kill()

    assert not runs(daemon)
    assert not runs(init)
    assert not alive(vm.folder)


def test_a_chain_of_forks_cannot_outrun_the_kill(vm: Vm) -> None:
    vm.boot(python(RUNNER, "runner.pid"))
    vm.number("runner.pid")

    vm.kill()

    assert not (vm.folder / "runner.pid").exists()
    assert not descendants(vm.url)


def test_processes_that_end_while_they_are_listed_are_passed_over() -> None:
    """It once raised, from two of three calls at /proc, and took the whole emulator along."""
    churn = "while :; do sh -c 'true & true & wait'; done"
    shell = subprocess.Popen(["sh", "-c", churn], start_new_session=True)
    try:
        children = [children_of(shell.pid) for _ in range(10_000)]
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()

    assert any(children)


def test_a_vm_is_booted_once(vm: Vm) -> None:
    vm.boot("echo booted >> boots", "exec sleep 1000")
    wait_for((vm.folder / "boots").exists)
    first = init_pid(vm.folder)

    vm.boot("echo booted >> boots")
    Vm(vm.folder).boot("echo booted >> boots")

    assert init_pid(vm.folder) == first
    assert (vm.folder / "boots").read_text() == "booted\n"


def test_logs_outlive_a_vm_and_its_disk_does_not(vm: Vm) -> None:
    vm.boot("echo hello; echo data > disk; echo done > marker")
    wait_for((vm.folder / "marker").exists)

    vm.kill()
    vm.kill()

    assert [file.name for file in vm.folder.iterdir()] == ["console.log"]
    assert "hello" in (vm.folder / "console.log").read_text()


def test_orphans_of_a_vm_are_reaped_by_its_init(vm: Vm) -> None:
    vm.boot("sh -c 'echo $$ > orphan.pid; sleep 0.2' & exit 0")
    orphan = vm.number("orphan.pid")

    wait_for(lambda: not Path(f"/proc/{orphan}").exists())
    assert alive(vm.folder)


def test_a_vm_is_known_by_its_folder_from_its_first_process_on(vm: Vm) -> None:
    vm.boot("exit 0")
    pid = init_pid(vm.folder)
    assert pid is not None

    init = psutil.Process(pid)  # for a moment it is still a copy of us, not yet our program
    wait_for(lambda: init.environ().get("HOME") == str(vm.folder))


def test_what_a_vm_is_booted_with_is_readable_by_its_owner_alone_from_the_beginning(vm: Vm) -> None:
    """Custom data holds the token that a node registers with; the boot script looks meanwhile."""
    before = os.umask(0o022)
    try:
        vm.boot_from(
            "#cloud-config\n"
            "write_files:\n"
            "- {path: /etc/node.json, permissions: '0600', content: secret}\n"
            "- {path: /etc/open, permissions: '0644', content: open}\n"
            "runcmd:\n"
            "- echo booted > booted\n"
        )
    finally:
        os.umask(before)
    vm.text("booted")

    modes = {
        name: (vm.folder / name).stat().st_mode & 0o777
        for name in ("user-data", "fs/etc/node.json", "fs/etc/open")
    }
    assert modes == {"user-data": 0o600, "fs/etc/node.json": 0o600, "fs/etc/open": 0o644}


def test_a_vm_has_a_host_name_that_no_resolver_knows(tmp_path: Path) -> None:
    """Ranks that met by host names would not meet. Without root it is the machine's own name."""
    vm = Vm(tmp_path / "n")
    ask = "import socket; name = socket.gethostname(); print(name)\nsocket.getaddrinfo(name, None)"
    vm.boot(f"{sys.executable} -c '{ask}' > name 2> refused; echo $? > code")
    name, code = vm.text("name").strip(), vm.text("code").strip()
    vm.kill()

    may = os.geteuid() == 0 and sys.platform == "linux"
    assert (name == "vm-n") is may
    assert code == "1" or not may
    assert socket.gethostname() != "vm-n"


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


def probe_result(vm: Vm) -> dict[str, Any]:
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
    probe, disk = probe_result(vm), f"{vm.folder}/fs"

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
    environment = probe_result(vm)["env"]

    assert set(environment) - {"LC_CTYPE"} == {
        "PATH",
        "HOME",
        "LANG",
        "REKINDLE_METADATA_URL",
        "FROM",
    }
    assert environment["REKINDLE_METADATA_URL"] == vm.url
    assert environment["HOME"] == str(vm.folder)
    assert str(vm.folder) not in environment["PATH"]


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
    environment = probe_result(vm)["env"]

    assert (environment["A"], environment["B"]) == ("2", f"{vm.folder}/fs/etc/b")


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
    status, console = code(vm, command)

    assert status == exit_code
    assert message in console


def _starts(vm: Vm) -> str:
    file = vm.folder / "starts"
    return file.read_text() if file.exists() else ""
