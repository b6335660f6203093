"""The real torchrun around a program of two lines: where output goes, and who dies with whom."""

import asyncio
import ctypes
import errno
import os
import socket
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.nodes.supervised import ALONE, ROOT
from tests.waiting import until
from trainer.process.landlock import landlock_version
from trainer.rundir import RunDir
from trainer.supervisor.blob.container import BlobAccess, JobContainer
from trainer.supervisor.control.launch import (
    NodeWorld,
    TrainerLauncher,
    find_marked_processes,
    torchrun_command,
)
from trainer.supervisor.machine.firewall import APPLIED, REQUESTED
from trainer.supervisor.machine.network import free_port
from trainer.supervisor.report.log_upload import LogUploads

PROGRAM = """
import os, signal, socket, sys
for port in (80, int(os.environ["MASTER_PORT"])):
    with socket.socket() as one:
        print("port", port, one.connect_ex((os.environ["MASTER_ADDR"], port)))
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], sys.argv[1])
print(os.environ["REKINDLE_ACCELERATOR"], os.environ["GLOO_SOCKET_IFNAME"], file=sys.stderr)
print(os.environ["NCCL_IB_DISABLE"], os.environ["NCCL_ALGO"])
signal.pause()
"""


@pytest.fixture
def world(tmp_path: Path) -> NodeWorld:
    """One node with two ranks."""
    generation = replace(ALONE, processes_per_node=2, master_port=free_port("127.0.0.1"))
    return NodeWorld(
        generation=generation,
        member=generation.members[0],
        folder=RunDir(tmp_path / "gen-0001"),
        logs=tmp_path / "logs",
    )


@pytest.fixture
def launcher(tmp_path: Path) -> TrainerLauncher:
    """Launch the program of two lines by torchrun."""
    (tmp_path / "program.py").write_text(PROGRAM)
    return TrainerLauncher(
        command=partial(torchrun_command, program=(str(tmp_path / "program.py"),)),
        environment={"PATH": os.defpath, "PYTHONPATH": str(ROOT)},
        accelerator="cpu",
        mark=str(tmp_path),
        vm_size="Standard_NC40ads_H100_v5",
    )


async def test_ranks_print_where_the_logs_look_and_die_when_killed(
    world: NodeWorld, launcher: TrainerLauncher, tmp_path: Path
) -> None:
    access = BlobAccess()
    logs = LogUploads(
        JobContainer(access, "http://127.0.0.1:9/a/c"), "att-test", world.ranks, world.logs
    )

    listening: list[str] = []

    async def read_tails() -> list[str]:
        return [logs.tail([rank]) for rank in world.ranks]

    process = await launcher.start(world, ("NCCL_ALGO=Ring",))
    try:
        log_tails = await until(
            read_tails, lambda tails: all("lo\n" in t and "of 2" in t for t in tails)
        )
        listening += _listening(world.generation.master_port)
        sessions = {os.getsid(p.pid) for p in find_marked_processes(str(tmp_path))}
    finally:
        process.kill()  # torchrun alone: its workers live on, in sessions of their own
        await process.wait()
        await launcher.kill_all()
        access.close()

    assert all(f"rank {rank} of 2 {world.folder.root}\n" in log_tails[rank] for rank in (0, 1))
    assert all("cpu lo\n" in tail and "1 Ring\n" in tail for tail in log_tails)
    assert len(sessions) == 3
    assert listening == [world.member.address]  # the store, and not on every address
    metadata = errno.EACCES if landlock_version(ctypes.CDLL(None)) >= 4 else errno.ECONNREFUSED
    assert all(f"port 80 {metadata}\n" in tail for tail in log_tails)
    assert all(f"port {world.generation.master_port} 0\n" in tail for tail in log_tails)
    assert not any(str(tmp_path / "program.py") in _command(p) for p in psutil.process_iter())


async def test_a_master_port_that_is_taken_is_called_by_its_name(
    world: NodeWorld, launcher: TrainerLauncher
) -> None:
    with socket.socket() as bound_socket:
        bound_socket.bind((world.member.address, world.generation.master_port))
        bound_socket.listen()
        process = await launcher.start(world)
        await process.wait()

    assert "EADDRINUSE" in (world.logs / "launcher.log").read_text()


async def test_no_rank_starts_before_the_firewall_has_let_the_members_in(
    world: NodeWorld, tmp_path: Path
) -> None:
    door = tmp_path / "door"
    door.mkdir()
    os.mkfifo(door / REQUESTED)
    (door / APPLIED).write_text("0 10.0.0.9\n")  # of the generation before
    launcher = TrainerLauncher(
        command=lambda _: (sys.executable, "-c", ""),
        environment={"PATH": os.defpath},
        accelerator="cpu",
        mark=str(tmp_path),
        firewall_folder=door,
    )
    with (door / REQUESTED).open("r+b", buffering=0) as firewall:
        starting = asyncio.create_task(launcher.start(world))
        request = await asyncio.to_thread(firewall.read, 4096)

        assert request == b"1 127.0.0.1\n"
        assert not starting.done()
        assert not world.logs.exists()
        (door / APPLIED).write_bytes(request)
        process = await starting
    assert await process.wait() == 0


def _listening(port: int) -> list[str]:
    sockets = [c for c in psutil.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    return [str(c.laddr[0]) for c in sockets if c.laddr and c.laddr[1] == port]


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
