"""A running stack seen from outside: addresses, parts and machines as processes.

This module only reads; `rekindle.local.faults` changes the stack.
"""

import json
import ssl
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import httpx
import psutil

from rekindle.local.parts import STACK_VARIABLE

VM_VARIABLE = "REKINDLE_METADATA_URL"  # environment variable of every process of a VM
SUPERVISOR = "trainer.supervisor"
TORCHRUN = "trainer.process.rendezvous"
RANK = "trainer.train"
ADMIN_TIMEOUT_SECONDS = 30.0


class TargetNotFound(Exception):
    """The stack, part, machine or process does not exist; the message says what to do."""


@dataclass(frozen=True, kw_only=True)
class StackInfo:
    """Addresses and keys of a running stack, from STATE/stack.json."""

    state: Path
    api_url: str
    api_key: str
    arm_url: str
    ca: str
    blob_url: str
    storage: str
    metadata_url: str
    database_url: str

    @classmethod
    def read(cls, state: Path | str) -> "StackInfo":
        """Read STATE/stack.json; raise TargetNotFound if no stack runs."""
        folder = Path(state).resolve()
        try:
            document = json.loads((folder / "stack.json").read_text())
        except FileNotFoundError as error:
            raise TargetNotFound(
                f"no local stack is running on {folder}. Start one with `make up`, or pass another"
                " state folder with --state."
            ) from error
        names = {field.name for field in fields(cls)} - {"state"}
        return cls(state=folder, **{name: document[name] for name in names})

    @property
    def tls_context(self) -> ssl.SSLContext:
        """TLS context that trusts the emulator's certificate."""
        return ssl.create_default_context(cafile=self.ca)


@dataclass(frozen=True, kw_only=True)
class LocalMachine:
    """One emulated VM; ``pid`` is its init process, or None if it does not run."""

    scale_set: str
    instance_id: str
    name: str
    vm_id: str
    address: str
    region: str
    vm_size: str
    state: str  # creating, starting, running, stopped or deallocated
    pid: int | None
    folder: Path
    metadata_url: str

    @property
    def attempt_id(self) -> str:
        """Attempt of a scale set's machine; a cluster's name is ambiguous."""
        return "att-" + self.scale_set.removeprefix("rk-")

    def belongs_to(self, attempt_id: str) -> bool:
        """Return whether the machine is in the attempt's scale set or cluster.

        A cluster's scale set is called NAME-MARK with a shortened name.
        """
        name = "rk-" + attempt_id.removeprefix("att-")
        return self.scale_set == name or self.scale_set.startswith(f"rk-{name[-21:]}-")


async def list_machines(stack: StackInfo, attempt_id: str = "") -> list[LocalMachine]:
    """Return all emulated VMs, or those of one attempt."""
    rows = (await call_emulator(stack, "GET", "virtualMachines"))["value"]
    vms = [_parse_machine(row) for row in rows]
    return [m for m in vms if not attempt_id or m.belongs_to(attempt_id)]


async def call_emulator(
    stack: StackInfo, verb: str, path: str, body: object = None
) -> dict[str, Any]:
    """Call the emulator's `/_emulator/PATH`; raise TargetNotFound if it refuses."""
    url = f"{stack.arm_url}/_emulator/{path}"
    client = httpx.AsyncClient(
        verify=stack.tls_context, trust_env=False, timeout=ADMIN_TIMEOUT_SECONDS
    )
    try:
        async with client:
            response = await client.request(verb, url, json=body)
    except httpx.TransportError as error:
        raise TargetNotFound(f"the emulator does not answer at {url}: {error}") from error
    document: dict[str, Any] = response.json()
    if response.is_error:
        raise TargetNotFound(f"the emulator refused: {document['error']['message']}")
    return document


def part_process(stack: StackInfo, name: str) -> psutil.Process:
    """Return the process of a part: service, emulator, azurite or postgres."""
    pid_file = stack.state / "pids" / name
    if not pid_file.exists():
        names = ", ".join(sorted(path.name for path in (stack.state / "pids").glob("*")))
        raise TargetNotFound(f"the stack has no part {name!r}; it has: {names}")
    text = pid_file.read_text().strip()
    try:
        process = psutil.Process(int(text or 0))
        if (
            text
            and environment_variable(process, STACK_VARIABLE) == str(stack.state)
            and is_alive(process)
        ):
            return process
    except psutil.NoSuchProcess:
        pass  # said below
    raise TargetNotFound(f"{name} is not running; the stack restarts it, so retry in a few seconds")


def vm_processes(vm: LocalMachine, program: str = "") -> list[psutil.Process]:
    """Return a VM's processes, oldest first; with ``program``, those that run this module."""
    own = [
        p
        for p in psutil.process_iter()
        if environment_variable(p, VM_VARIABLE) == vm.metadata_url and is_alive(p)
    ]
    matching = [p for p in own if not program or _runs_program(_command_line(p), program)]
    return sorted(matching, key=lambda process: process.create_time())


def environment_variable(process: psutil.Process, name: str) -> str | None:
    """Return an environment variable of the process; None if it ended or is not ours."""
    try:
        return process.environ().get(name)
    except (psutil.NoSuchProcess, psutil.AccessDenied, OSError):
        return None


def is_alive(process: psutil.Process) -> bool:
    """Return whether the process still runs; a zombie does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _runs_program(arguments: list[str], program: str) -> bool:
    """Return whether the command line runs this program; torchrun's names the ranks' as well."""
    return program in arguments and (program != RANK or TORCHRUN not in arguments)


def _command_line(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def _parse_machine(row: dict[str, Any]) -> LocalMachine:
    values = {field.name: row[field.name] for field in fields(LocalMachine)}
    return LocalMachine(**values | {"folder": Path(row["folder"])})
