"""Machines of one subnet as network namespaces, and ranks that a supervisor starts on them.

It needs root, `ip` and `iptables`. Run as a program, it starts a machine's ranks.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest

from service.cloud import node_firewall
from tests.nodes.supervised import ALONE, ROOT
from trainer.contract import Generation, Member
from trainer.rundir import RunDir
from trainer.supervisor.control.launch import NodeWorld, TrainerLauncher, torchrun_command

PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
METADATA = "169.254.169.254"
SUPERVISOR, OTHER = 10001, 10002  # user ids
NEEDS_ROOT = pytest.mark.skipif(
    os.geteuid() != 0 or not (shutil.which("ip") and shutil.which("iptables")),
    reason="needs root, ip and iptables",
)
# Two ranks meet over gloo, and then wait.
PROGRAM = """
import pathlib, signal, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
sum_of_ranks = torch.ones(1)
dist.all_reduce(sum_of_ranks)
pathlib.Path(sys.argv[1], f"met-{dist.get_rank()}").write_text(str(sum_of_ranks.item()))
signal.pause()
"""
_CONNECT = """
import socket, sys
for port in map(int, sys.argv[2:]):
    with socket.socket() as one:
        one.settimeout(2)
        print(port, one.connect_ex((sys.argv[1], port)) == 0)
"""
_NAMED = 'echo "$0" >/proc/sys/kernel/hostname && exec "$@"'


@dataclass(frozen=True)
class Machine:
    """A network namespace with one address in the subnet, a host name and a door of its own."""

    name: str
    address: str
    door: Path
    started: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def run(self, *arguments: str, user: int = 0) -> str:
        """Run a program in it to its end and return its output."""
        command = self._words(*arguments, user=user)
        process = subprocess.run(command, check=False, capture_output=True, text=True)
        assert process.returncode == 0, process.stderr
        return process.stdout

    def start(self, *arguments: str) -> None:
        """Start a program that ends with the machine."""
        command = self._words(*arguments)
        settings = {"PYTHONPATH": str(ROOT), "PATH": PATH}
        self.started.append(subprocess.Popen(command, env=settings, stderr=subprocess.DEVNULL))

    def start_ranks(self, generation: Generation, folder: Path) -> None:
        """Start its ranks of PROGRAM as its supervisor would, in a folder of their own."""
        folder.mkdir()
        (folder / "generation.json").write_text(generation.to_json())
        (folder / "program.py").write_text(PROGRAM)
        self.start(
            sys.executable, "-m", "tests.nodes.subnet", self.name, str(folder), str(self.door)
        )

    def resolve_itself_to(self, address: str) -> None:
        """Resolve its host name to this address, or to none for "".

        `ip netns exec` mounts both files.
        """
        host_line = f"{address} {self.name}\n" if address else ""
        self._etc.mkdir(parents=True)
        (self._etc / "hosts").write_text(f"127.0.0.1 localhost\n{host_line}")
        (self._etc / "resolv.conf").write_text("nameserver 127.0.0.1\n")  # where nothing listens

    def _words(self, *command: str, user: int = 0) -> list[str]:
        ids = ("--reuid", str(user), "--regid", str(user), "--clear-groups")
        prefix = ("unshare", "--uts", "sh", "-c", _NAMED, self.name)
        return ["ip", "netns", "exec", self.name, *prefix, "setpriv", *ids, *command]

    def reaches(self, address: str, *ports: int, user: int = 0) -> set[int]:
        """Return the ports that it can connect to."""
        python = Path(sys.executable).resolve()
        output = self.run(str(python), "-ISc", _CONNECT, address, *map(str, ports), user=user)
        return {int(line.split()[0]) for line in output.splitlines() if line.endswith("True")}

    def listening(self) -> list[int]:
        """Return the ports that a program listens on here."""
        rows = self.run("cat", "/proc/net/tcp", "/proc/net/tcp6").splitlines()
        fields = [row.split() for row in rows if ":" in row]
        return sorted({int(f[1].rpartition(":")[2], 16) for f in fields if f[3] == "0A"})

    def end(self) -> None:
        """Kill its processes, and delete it with its link."""
        with contextlib.suppress(subprocess.CalledProcessError):
            pids = subprocess.check_output(["ip", "netns", "pids", self.name], text=True)
            for pid in map(int, pids.split()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for process in self.started:
                process.wait()
            _ip("-n", self.name, "link", "del", "eth0")
        _ip("netns", "del", self.name)
        shutil.rmtree(self._etc, ignore_errors=True)

    @property
    def firewall(self) -> Path:
        return self.door.with_name(f"{self.door.name}.sh")

    @property
    def _etc(self) -> Path:
        return Path("/etc/netns", self.name)


@contextlib.contextmanager
def machines(folder: Path, metadata_service: bool = False) -> Iterator[list[Machine]]:
    """Create three machines and, if requested, the metadata service as a fourth one."""
    running: list[Machine] = []
    bridge = f"rk{os.getpid()}"
    try:
        _ip("link", "add", "name", bridge, "type", "bridge")
        _ip("link", "set", bridge, "up")
        for number in range(4 if metadata_service else 3):
            machine = Machine(f"{bridge}-{number}", f"10.77.0.{4 + number}", folder / f"{number}")
            running.append(machine)
            _plug_in(machine, bridge, f"{bridge}v{number}", METADATA if number == 3 else "")
        yield running
    finally:
        for machine in running:
            machine.end()
        subprocess.run(["ip", "link", "del", bridge], check=False)


def close(machine: Machine) -> None:
    """Set up a node's firewall on it."""
    script = node_firewall.SCRIPT.format(door=machine.door, user=SUPERVISOR)
    machine.firewall.write_text(script)
    machine.run("sh", str(machine.firewall), "setup")
    machine.start("sh", str(machine.firewall), "watch")


def generation_of(*members: Machine) -> Generation:
    """Return a generation with one rank on each machine."""
    group = tuple(
        Member(node_id=m.name, vm_id=m.name, address=m.address, node_rank=rank)
        for rank, m in enumerate(members)
    )
    return replace(ALONE, members=group, master_address=members[0].address, master_port=40123)


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


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


async def _start(node: str, folder: Path, door: Path) -> int:
    generation = Generation.from_json((folder / "generation.json").read_text())
    member = generation.member(node)
    assert member is not None
    world = NodeWorld(
        generation=generation, member=member, folder=RunDir(folder), logs=folder / "logs"
    )
    launcher = TrainerLauncher(
        command=partial(torchrun_command, program=(str(folder / "program.py"),)),
        environment={"PATH": PATH, "PYTHONPATH": str(ROOT)},
        accelerator="cpu",
        mark=str(folder),
        firewall_folder=door,
    )
    return await (await launcher.start(world)).wait()


if __name__ == "__main__":
    sys.exit(asyncio.run(_start(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))))
