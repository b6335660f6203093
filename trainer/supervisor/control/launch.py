"""Start and kill the trainer's processes.

torchrun puts its workers into sessions of their own, and they outlive it when it is killed. All
inherit one environment variable, by which this supervisor or the next one finds them.
"""

import asyncio
import sys
from asyncio.subprocess import Process
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from trainer.contract import Generation, Member
from trainer.rundir import RunDir
from trainer.supervisor.machine import network
from trainer.supervisor.machine.firewall import FIREWALL_FOLDER, admit_members

MARK = "REKINDLE_SUPERVISED_BY"  # the work folder of the supervisor that a process belongs to


@dataclass(frozen=True, kw_only=True)
class NodeWorld:
    """One node's part of a torchrun world."""

    generation: Generation
    member: Member
    folder: RunDir
    logs: Path  # torchrun's --log-dir

    @property
    def ranks(self) -> range:
        """The global ranks that run here."""
        per_node = self.generation.processes_per_node
        return range(self.member.node_rank * per_node, (self.member.node_rank + 1) * per_node)


Command = Callable[[NodeWorld], Sequence[str]]


TRAINER = ("-m", "trainer.train")
CONVERTER = (sys.executable, "-m", "trainer.convert")


class NotConvertibleError(Exception):
    """A checkpoint cannot become a model on any machine; the text says why."""


def torchrun_command(world: NodeWorld, program: Sequence[str] = TRAINER) -> Sequence[str]:
    """Return the command that starts this node's ranks of ``program``."""
    generation = world.generation
    return (
        sys.executable,
        "-m",
        "trainer.process.rendezvous",
        f"--nnodes={len(generation.members)}",
        f"--nproc-per-node={generation.processes_per_node}",
        "--rdzv-backend=own-address",
        f"--rdzv-endpoint={generation.master_address}:{generation.master_port}",
        f"--rdzv-conf=rank={world.member.node_rank}",
        "--max-restarts=0",
        f"--log-dir={world.logs}",
        "--redirects=3",
        *program,
        str(world.folder.root),
    )


@dataclass(frozen=True, kw_only=True)
class TrainerLauncher:
    """Starts and kills trainers; ``mark`` is the same for all supervisors of a work folder."""

    command: Command
    environment: Mapping[str, str]  # the supervisor's own
    accelerator: str
    mark: str
    converter: Sequence[str] = CONVERTER
    firewall_folder: Path = FIREWALL_FOLDER  # of the machine's firewall
    vm_size: str = ""  # known once the metadata service has answered

    async def convert(self, checkpoint: Path, target: Path, base: Path, run_spec: Path) -> None:
        """Convert a checkpoint to a model folder, which appears whole or not at all.

        Raises NotConvertibleError, and OSError where a retry may help.
        """
        options = ("--to", "hf", "--base", str(base), "--run-spec", str(run_spec))
        process = await asyncio.create_subprocess_exec(
            *(*self.converter, *options, str(checkpoint), str(target)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            env={**self.environment, MARK: self.mark},
        )
        try:
            _, stderr = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        if process.returncode:
            why = stderr.decode(errors="replace").strip().rpartition("\n")[2]
            text = f"the checkpoint that the job begins with: {why or process.returncode}"
            raise NotConvertibleError(text) if process.returncode == 1 else OSError(text)

    async def start(self, world: NodeWorld, nccl: Sequence[str] = ()) -> Process:
        """Start this node's ranks, in their own session, once the firewall admits the members.

        ``nccl`` are the job's own settings of NCCL. Raises an OSError that says what is missing.
        """
        settings = self._settings(world, nccl)
        await admit_members(world.generation, self.firewall_folder)
        world.logs.mkdir(parents=True, exist_ok=True)
        with (world.logs / "launcher.log").open("wb") as output:
            return await asyncio.create_subprocess_exec(
                *self.command(world),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**self.environment, **settings},
            )

    async def kill_all(self) -> None:
        """Kill every process of every trainer; return when none is left."""
        while processes := await asyncio.to_thread(find_marked_processes, self.mark):
            for process in processes:
                _kill(process)
            await asyncio.sleep(0.05)

    def _settings(self, world: NodeWorld, nccl: Sequence[str]) -> dict[str, str]:
        settings = network.network_settings(world.member.address, self.vm_size, nccl) | {
            MARK: self.mark,
            "REKINDLE_ACCELERATOR": self.accelerator,
            "HF_HUB_OFFLINE": "1",
            "LOGLEVEL": "ERROR",
            "PYTHONUNBUFFERED": "1",
            "TOKENIZERS_PARALLELISM": "false",
        }
        if self.accelerator == "cpu":
            settings |= {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
        return settings


def find_marked_processes(mark: str) -> list[psutil.Process]:
    """Return every living process that was started under this mark."""
    return [p for p in psutil.process_iter() if _has_mark(p, mark)]


def _has_mark(process: psutil.Process, mark: str) -> bool:
    try:
        return process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:  # gone, or another user's
        return False


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return
