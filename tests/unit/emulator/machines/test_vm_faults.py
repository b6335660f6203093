"""What is done to one emulated VM from outside: its network, its disk, its power."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from emulator.faults import harm
from emulator.machines import processes
from tests.emulated.process import pause, wait_for
from tests.emulated.vm import Vm

CLOUD_CONFIG = """#cloud-config
bootcmd: [echo early >> early]
write_files:
  - {path: /etc/list, content: "one\\n"}
  - {path: /etc/list, content: "two\\n", append: true}
  - {path: /etc/late, content: "late\\n", defer: true}
runcmd:
  - cat /etc/list /etc/late > seen
  - docker run -d --name kept --restart unless-stopped rekindle/sleeper:1
  - docker run -d --name once rekindle/sleeper:1
users: [{name: ops}]
"""
IMAGES = {"rekindle/sleeper:1": {"command": ["/bin/sh", "-c", "echo began; exec sleep 1000"]}}
WRITER = """
import os, time
file = os.open("written", os.O_WRONLY | os.O_CREAT)
while True:
    os.write(file, b"x" * 100_000)
    time.sleep(0.001)
"""


@pytest.fixture
def vm(tmp_path: Path) -> Iterator[Vm]:
    """Yield a VM behind a proxy and kill it after the test."""
    machine = Vm(tmp_path / "vm", proxied=True)
    yield machine
    processes.thaw(machine.folder, machine.url)
    machine.kill()


def proxy_of(vm: Vm) -> str:
    """Return the proxy that the VM's programs are told to use."""
    vm.boot("echo $HTTP_PROXY > proxy; echo $no_proxy > spared; exec sleep 1000")
    return vm.text("proxy").strip()


def reach(proxy: str, url: str) -> bool:
    """Whether a request gets through, to a port where nobody listens."""
    with httpx.Client(proxy=proxy, timeout=0.3) as client, pytest.raises(httpx.TransportError) as e:
        client.get(url)
    return not isinstance(e.value, httpx.TimeoutException)


def test_a_cut_survives_a_restart_of_the_vm_and_ends_when_it_is_mended(vm: Vm) -> None:
    url = "http://127.0.0.1:1/"
    before = reach(proxy_of(vm).strip(), "http://127.0.0.1:2/")
    vm.harm(cuts={"*": "drop"})
    during = reach(vm.text("proxy").strip(), "http://127.0.0.1:2/")
    spared = reach(vm.text("proxy").strip(), url)  # the metadata service's address here
    vm.kill(wipe=False)
    vm.boot_from("#cloud-config\nbootcmd: [echo $HTTP_PROXY > again]\n")
    after_restart = reach(vm.text("again").strip(), "http://127.0.0.1:2/")
    vm.harm(cuts={})
    mended = reach(vm.text("again").strip(), "http://127.0.0.1:2/")

    assert (before, during, spared, after_restart, mended) == (True, False, True, False, True)
    assert "127.0.0.1:1" in vm.text("spared")


def test_of_orders_in_quick_succession_the_last_one_holds(vm: Vm) -> None:
    vm.boot("echo $$ > pid; exec sleep 1000")
    vm.number("pid")
    init = processes.init_pid(vm.folder)
    assert init is not None
    orders = harm.Harm()
    for _ in range(300):
        harm.write(vm.folder, orders)
        harm.notify_vm(init)

    wait_for(lambda: harm.obeyed(vm.folder) == orders.change)


def test_containers_go_by_the_vms_proxy(vm: Vm) -> None:
    show = {"command": ["/bin/sh", "-c", "echo $HTTPS_PROXY"]}
    vm.boot("echo $HTTPS_PROXY > out; docker run x > in", images={"x": show})

    assert vm.text("in") == vm.text("out") != "\n"


def test_a_second_boot_obeys_bootcmd_and_docker_but_runs_no_command_again(vm: Vm) -> None:
    vm.boot_from(CLOUD_CONFIG, IMAGES)
    log = vm.folder / "containers" / "kept.log"
    wait_for(lambda: log.exists() and log.read_text() == "began\n")
    container_log = vm.folder / "containers" / "once.log"
    wait_for(lambda: container_log.exists() and container_log.read_text() == "began\n")
    vm.kill(wipe=False)
    vm.boot_from(CLOUD_CONFIG, IMAGES)
    wait_for(lambda: log.read_text() == "began\nbegan\n")

    assert vm.text("seen") == "one\ntwo\nlate\n"
    assert vm.text("early") == "early\nearly\n"
    assert container_log.read_text() == "began\n"
    assert vm.console().count("the emulator ignores 'users'") == 1


def test_a_slow_disk_takes_no_more_than_it_can(vm: Vm) -> None:
    limit = 2_000_000
    vm.boot(f"exec {sys.executable} -c '{WRITER}'")
    file = vm.folder / "written"
    wait_for(lambda: file.exists() and file.stat().st_size > 10 * limit)
    vm.harm(write_limit=limit)
    pause(0.3)
    begun, size = time.monotonic(), file.stat().st_size
    pause(1)
    rate = (file.stat().st_size - size) / (time.monotonic() - begun)
    vm.harm(write_limit=0)
    slowed = file.stat().st_size
    wait_for(lambda: file.stat().st_size > slowed + 5 * limit)

    assert rate < 4 * limit  # it comes in gusts: one look may see much, and waits after


def test_a_frozen_vm_stands_still_as_a_whole_and_goes_on(vm: Vm) -> None:
    vm.boot("echo $$ > pid; exec sleep 1000")
    script = psutil.Process(vm.number("pid"))
    processes.freeze(vm.folder, vm.url)
    wait_for(lambda: script.status() == psutil.STATUS_STOPPED)
    alive = processes.alive(vm.folder)
    processes.thaw(vm.folder, vm.url)
    wait_for(lambda: script.status() != psutil.STATUS_STOPPED)

    assert alive


def test_a_machine_that_boots_again_is_not_taken_for_crashed(vm: Vm) -> None:
    vm.boot("echo $$ > pid; exec sleep 1000")
    vm.number("pid")
    processes.note_crash(vm.folder)
    vm.kill(wipe=False)
    crashed = processes.crashed(vm.folder)
    vm.boot("")

    assert (crashed, processes.crashed(vm.folder)) == (True, False)
    assert (vm.folder / "pid").exists()  # its disk is still there
