"""Machines of one subnet, each with a node's firewall: who reaches whom.

Real network namespaces and the real rules: needs root, `ip` and `iptables`. What the rules say and
when they are asked for is held without either by `tests/unit/test_node_firewall.py`.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from service.cloud import node_firewall
from tests.supervised import ROOT
from tests.waiting import until
from trainer.contract import Generation, Member
from trainer.rundir import RunDir
from trainer.supervisor.launch import World, torchrun
from trainer.supervisor.members import admit

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        os.geteuid() != 0 or not (shutil.which("ip") and shutil.which("iptables")),
        reason="needs root, ip and iptables",
    ),
]
SUPERVISOR, OTHER = 10001, 10002  # users
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
METADATA = "169.254.169.254"
# Two ranks meet over gloo, then stay.
PROGRAM = """
import pathlib, signal, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
sum_of_ranks = torch.ones(1)
dist.all_reduce(sum_of_ranks)
pathlib.Path(sys.argv[1], f"met-{dist.get_rank()}").write_text(str(sum_of_ranks.item()))
signal.pause()
"""
CONNECT = """
import socket, sys
for port in map(int, sys.argv[2:]):
    with socket.socket() as one:
        one.settimeout(2)
        print(port, one.connect_ex((sys.argv[1], port)) == 0)
"""


@dataclass(frozen=True)
class Machine:
    """A network namespace with one address in the subnet, and a door of its own."""

    name: str
    address: str
    door: Path
    started: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def run(self, *words: str, user: int = 0) -> str:
        """Run a program in it to its end."""
        command = self._words(*words, user=user)
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, *words: str) -> None:
        """Start a program that ends with the machine."""
        settings = {"PYTHONPATH": str(ROOT), "GLOO_SOCKET_IFNAME": "eth0", "PATH": PATH}
        command = self._words(*words)
        self.started.append(subprocess.Popen(command, env=settings, stderr=subprocess.DEVNULL))

    def _words(self, *words: str, user: int = 0) -> list[str]:
        ids = ("--reuid", str(user), "--regid", str(user), "--clear-groups")
        return ["ip", "netns", "exec", self.name, "setpriv", *ids, *words]

    def reaches(self, address: str, *ports: int, user: int = 0) -> set[int]:
        """Those of the ports that it can connect to."""
        python = Path(sys.executable).resolve()
        said = self.run(str(python), "-ISc", CONNECT, address, *map(str, ports), user=user)
        return {int(line.split()[0]) for line in said.splitlines() if line.endswith("True")}

    def listening(self) -> list[int]:
        """Ports that something listens on here."""
        rows = self.run("cat", "/proc/net/tcp", "/proc/net/tcp6").splitlines()
        fields = [row.split() for row in rows if ":" in row]
        return sorted({int(f[1].rpartition(":")[2], 16) for f in fields if f[3] == "0A"})

    def end(self) -> None:
        """Kill what runs in it, and drop it with its cable."""
        with contextlib.suppress(subprocess.CalledProcessError):
            pids = subprocess.check_output(["ip", "netns", "pids", self.name], text=True)
            for pid in map(int, pids.split()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for process in self.started:
                process.wait()
            _ip("-n", self.name, "link", "del", "eth0")
        _ip("netns", "del", self.name)

    @property
    def firewall(self) -> Path:
        return self.door.with_name(f"{self.door.name}.sh")


@pytest.fixture
def subnet(tmp_path: Path) -> Iterator[list[Machine]]:
    """Three machines and, as the fourth, the metadata service."""
    made: list[Machine] = []
    bridge = f"rk{os.getpid()}"
    try:
        _ip("link", "add", "name", bridge, "type", "bridge")
        _ip("link", "set", bridge, "up")
        for number in range(4):
            machine = Machine(f"{bridge}-{number}", f"10.77.0.{4 + number}", tmp_path / f"{number}")
            made.append(machine)
            _plug_in(machine, bridge, f"{bridge}v{number}", METADATA if number == 3 else "")
        for machine in made[:3]:
            script = node_firewall.SCRIPT.format(door=machine.door, user=SUPERVISOR)
            machine.firewall.write_text(script)
            machine.run("sh", str(machine.firewall), "setup")
            machine.start("sh", str(machine.firewall), "watch")
        yield made
    finally:
        for machine in made:
            machine.end()
        subprocess.run(["ip", "link", "del", bridge], check=False)


async def test_only_members_reach_the_store_and_the_ranks(
    subnet: list[Machine], tmp_path: Path
) -> None:
    first, second, neighbour, _ = subnet
    generation = _generation(first, second)
    for machine in (first, second):
        await admit(generation, machine.door)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    for rank, machine in enumerate((first, second)):
        machine.start(*torchrun(_world(generation, rank, tmp_path), (str(program),)))

    async def met() -> int:
        return sum((tmp_path / f"gen-{rank}" / f"met-{rank}").exists() for rank in (0, 1))

    await until(met, lambda count: count == 2, deadline=240)

    assert generation.master_port in first.listening()
    for machine, other in ((first, second), (second, first)):
        ports = machine.listening()
        assert ports
        assert other.reaches(machine.address, *ports) == set(ports)
        assert neighbour.reaches(machine.address, *ports) == set()

    await admit(replace(_generation(first, neighbour), number=2), first.door)

    assert neighbour.reaches(first.address, generation.master_port)
    assert not second.reaches(first.address, generation.master_port)


async def test_the_metadata_service_answers_the_supervisors_user_alone(
    subnet: list[Machine],
) -> None:
    node, azure = subnet[0], subnet[3]
    azure.start(sys.executable, "-m", "http.server", "80", "--bind", METADATA)

    async def serves() -> bool:
        return 80 in azure.listening()

    await until(serves, bool)
    asked = {user: node.reaches(METADATA, 80, user=user) for user in (0, SUPERVISOR, OTHER)}

    assert asked == {0: {80}, SUPERVISOR: {80}, OTHER: set()}


def _generation(*machines: Machine) -> Generation:
    members = tuple(
        Member(node_id=m.name, vm_id=m.name, address=m.address, node_rank=rank)
        for rank, m in enumerate(machines)
    )
    return Generation(
        number=1,
        job_id="job-test",
        attempt_id="att-test",
        members=members,
        processes_per_node=1,
        master_address=members[0].address,
        master_port=40123,
        checkpoint=None,
        run_spec_sha256="",
    )


def _world(generation: Generation, rank: int, folder: Path) -> World:
    run = folder / f"gen-{rank}"
    run.mkdir()
    member = generation.members[rank]
    return World(generation=generation, member=member, folder=RunDir(run), logs=run / "logs")


def _plug_in(machine: Machine, bridge: str, cable: str, also: str) -> None:
    _ip("netns", "add", machine.name)
    _ip("link", "add", "name", cable, "type", "veth", "peer", "name", f"{cable}p")
    _ip("link", "set", cable, "master", bridge, "up")
    _ip("link", "set", f"{cable}p", "netns", machine.name)
    inside = ("-n", machine.name)
    _ip(*inside, "link", "set", f"{cable}p", "name", "eth0")
    _ip(*inside, "addr", "add", f"{machine.address}/24", "dev", "eth0")
    if also:
        _ip(*inside, "addr", "add", f"{also}/32", "dev", "eth0")
    for link in ("lo", "eth0"):
        _ip(*inside, "link", "set", link, "up")
    if not also:
        _ip(*inside, "route", "add", METADATA, "dev", "eth0")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)
