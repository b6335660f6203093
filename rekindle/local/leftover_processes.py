"""Stop processes that outlive their stack: parts of a killed stack, and emulated VMs."""

import signal
from collections.abc import Iterable
from pathlib import Path

import psutil

from rekindle.local.parts import GRACE_SECONDS, MARK
from rekindle.local.running_stack import VM_MARK, variable
from rekindle.local.state_folder import StateFolder


def end_parts(state: StateFolder) -> list[str]:
    """Stop the parts that a killed stack left running; return their names."""
    found: dict[str, psutil.Process] = {}
    for note in sorted((state / "pids").glob("*")):
        process = _marked(note.read_text().strip(), state)
        if process is not None:
            found[note.name] = process
        note.unlink()
    # SIGINT stops PostgreSQL without waiting for clients; the others treat it as Ctrl-C.
    _end(found.values(), signal.SIGINT)
    return sorted(found)


def end_vms(state: StateFolder) -> int:
    """Kill all processes of emulated VMs, once no emulator runs; return their number."""
    killed = 0
    while found := [p for p in psutil.process_iter() if _of_vm(p, state / "azure" / "vms")]:
        for process in found:
            process.kill()
        psutil.wait_procs(found, timeout=GRACE_SECONDS)
        killed += len(found)
    return killed


def _marked(pid: str, state: StateFolder) -> psutil.Process | None:
    """Return the process of that id if it still belongs to this stack."""
    if not pid.isdigit() or not psutil.pid_exists(int(pid)):
        return None
    process = psutil.Process(int(pid))
    return process if variable(process, MARK) == str(state.path) else None


def _of_vm(process: psutil.Process, disks: Path) -> bool:
    """Return whether the process belongs to a VM whose disk (its HOME) is in that folder."""
    if variable(process, VM_MARK) is None:
        return False
    return Path(variable(process, "HOME") or "/").is_relative_to(disks)


def _end(processes: Iterable[psutil.Process], how: signal.Signals) -> None:
    processes = list(processes)
    for process in processes:
        process.send_signal(how)
    _, alive = psutil.wait_procs(processes, timeout=GRACE_SECONDS)
    for process in alive:
        process.kill()
    psutil.wait_procs(alive, timeout=GRACE_SECONDS)
