"""A stack that runs, seen from outside: where everything is, its parts and machines as processes.

Nothing here changes anything; `rekindle.local.faults` does.
"""

import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import httpx
import psutil

from rekindle.local.parts import MARK

VM_MARK = "REKINDLE_METADATA_URL"  # in every process of a VM
SUPERVISOR = "trainer.supervisor"
TORCHRUN = "trainer.process.rendezvous"
RANK = "trainer.train"
ADMIN_SECONDS = 30.0


class NotThere(Exception):
    """The stack, part, machine or process is not there; the message says what to do."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a running stack says of itself to programs on the same machine."""

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
    def read(cls, state: Path | str) -> "Facts":
        """Read STATE/stack.json, or raise NotThere."""
        folder = Path(state).resolve()
        try:
            told = json.loads((folder / "stack.json").read_text())
        except FileNotFoundError as error:
            raise NotThere(
                f"no local stack runs on {folder}. Start one with `make up`, or name the folder"
                " of another one with --state."
            ) from error
        known = {field.name for field in fields(cls)} - {"state"}
        return cls(state=folder, **{name: told[name] for name in known})

    @property
    def trust(self) -> ssl.SSLContext:
        """What the emulator's certificate is checked against."""
        return ssl.create_default_context(cafile=self.ca)


@dataclass(frozen=True, kw_only=True)
class Machine:
    """One emulated VM; ``pid`` is its init process, None unless it runs."""

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
        """The attempt that a machine of a scale set was made for; a cluster's name says less."""
        return "att-" + self.scale_set.removeprefix("rk-")

    def belongs_to(self, attempt_id: str) -> bool:
        """Whether it was made for the attempt: in its scale set, or as a node of its cluster.

        The emulator's clusters have a scale set NAME-MARK, and their names are shortened.
        """
        name = "rk-" + attempt_id.removeprefix("att-")
        return self.scale_set == name or self.scale_set.startswith(f"rk-{name[-21:]}-")


async def machines(stack: Facts, attempt_id: str = "") -> list[Machine]:
    """Every emulated VM, or those of one attempt."""
    rows = (await ask(stack, "GET", "virtualMachines"))["value"]
    found = [_machine(row) for row in rows]
    return [m for m in found if not attempt_id or m.belongs_to(attempt_id)]


async def ask(stack: Facts, verb: str, what: str, body: object = None) -> dict[str, Any]:
    """Call the emulator's `/_emulator/WHAT`; NotThere with its own words when it refuses."""
    url = f"{stack.arm_url}/_emulator/{what}"
    client = httpx.AsyncClient(verify=stack.trust, trust_env=False, timeout=ADMIN_SECONDS)
    try:
        async with client:
            answer = await client.request(verb, url, json=body)
    except httpx.TransportError as error:
        raise NotThere(f"the emulator does not answer at {url}: {error}") from error
    told: dict[str, Any] = answer.json()
    if answer.is_error:
        raise NotThere(f"the emulator refused: {told['error']['message']}")
    return told


def part(stack: Facts, name: str) -> psutil.Process:
    """The process of one part of the stack: service, emulator, azurite or postgres."""
    note = stack.state / "pids" / name
    if not note.exists():
        names = ", ".join(sorted(path.name for path in (stack.state / "pids").glob("*")))
        raise NotThere(f"the stack has no part {name!r}; it has: {names}")
    text = note.read_text().strip()
    try:
        process = psutil.Process(int(text or 0))
        if text and process.environ().get(MARK) == str(stack.state) and alive(process):
            return process
    except psutil.NoSuchProcess:
        pass  # said below
    raise NotThere(f"{name} does not run just now; the stack starts it again, try in a moment")


def processes(vm: Machine, program: str = "") -> list[psutil.Process]:
    """The processes of a VM, oldest first; with ``program`` those that run this module."""
    found = [p for p in _of_vm(vm) if not program or _runs(_words(p), program)]
    return sorted(found, key=lambda process: process.create_time())


def alive(process: psutil.Process) -> bool:
    """Whether it still runs; a zombie does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _of_vm(vm: Machine) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        try:
            if process.environ().get(VM_MARK) == vm.metadata_url and alive(process):
                yield process
        except (psutil.NoSuchProcess, psutil.AccessDenied, OSError):
            continue  # gone, or somebody else's


def _runs(words: list[str], program: str) -> bool:
    """Whether that is the program; torchrun's command line names the ranks' program as well."""
    return program in words and (program != RANK or TORCHRUN not in words)


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def _machine(row: dict[str, Any]) -> Machine:
    values = {field.name: row[field.name] for field in fields(Machine)}
    return Machine(**values | {"folder": Path(row["folder"])})
