"""Stop processes that outlive their stack: parts of a killed stack, and emulated VMs."""

import signal
from collections.abc import Iterable
from pathlib import Path

import psutil

from rekindle.local.parts import GRACE_SECONDS, STACK_VARIABLE
from rekindle.local.running_stack import VM_VARIABLE, environment_variable
from rekindle.local.state_folder import StateFolder


def stop_parts(state: StateFolder) -> list[str]:
    """Stop the parts that a killed stack left running; return their names."""
    processes: dict[str, psutil.Process] = {}
    for pid_file in sorted((state / "pids").glob("*")):
        process = _stack_process(pid_file.read_text().strip(), state)
        if process is not None:
            processes[pid_file.name] = process
        pid_file.unlink()
    # SIGINT stops PostgreSQL without waiting for clients; the others treat it as Ctrl-C.
    _stop_processes(processes.values(), signal.SIGINT)
    return sorted(processes)


def kill_vms(state: StateFolder) -> int:
    """Kill all processes of emulated VMs, once no emulator runs; return their number."""
    killed = 0
    while processes := [
        p for p in psutil.process_iter() if _belongs_to_vm(p, state / "azure" / "vms")
    ]:
        for process in processes:
            process.kill()
        psutil.wait_procs(processes, timeout=GRACE_SECONDS)
        killed += len(processes)
    return killed


def _stack_process(pid: str, state: StateFolder) -> psutil.Process | None:
    """Return the process of that id if it still belongs to this stack."""
    if not pid.isdigit() or not psutil.pid_exists(int(pid)):
        return None
    process = psutil.Process(int(pid))
    return process if environment_variable(process, STACK_VARIABLE) == str(state.path) else None


def _belongs_to_vm(process: psutil.Process, disks: Path) -> bool:
    """Return whether the process belongs to a VM whose disk (its HOME) is in that folder."""
    if environment_variable(process, VM_VARIABLE) is None:
        return False
    return Path(environment_variable(process, "HOME") or "/").is_relative_to(disks)


def _stop_processes(processes: Iterable[psutil.Process], stop_signal: signal.Signals) -> None:
    processes = list(processes)
    for process in processes:
        process.send_signal(stop_signal)
    _, alive = psutil.wait_procs(processes, timeout=GRACE_SECONDS)
    for process in alive:
        process.kill()
    psutil.wait_procs(alive, timeout=GRACE_SECONDS)
