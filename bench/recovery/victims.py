"""Search for the process to kill, before the kill is due.

`rekindle.local.faults` searches at the time of the call, which takes longer than a save.
"""

import psutil

from bench.recovery.observed.cluster import Vm
from bench.recovery.plan import KillKind
from rekindle.local.running_stack import RANK, SUPERVISOR, TORCHRUN

_PROGRAMS = {KillKind.SUPERVISOR: SUPERVISOR, KillKind.TRAINER: RANK, KillKind.LAUNCHER: TORCHRUN}


def on_machine(vm: Vm, kind: KillKind) -> psutil.Process | None:
    """Return the process of that kind on the machine, or None."""
    if vm.pid is None:
        return None
    try:
        below = psutil.Process(vm.pid).children(recursive=True)  # init adopts all orphans
    except psutil.NoSuchProcess:
        return None
    return next((p for p in below if _kind(p) is kind), None)


def alive(process: psutil.Process) -> bool:
    """Return whether the process runs and is not a zombie."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _kind(process: psutil.Process) -> KillKind | None:
    """Return the kind of a process by its command line.

    The launcher is checked first, because its command line also contains the rank's program.
    """
    try:
        command_line = process.cmdline()
    except psutil.Error:
        return None
    if TORCHRUN in command_line:
        return KillKind.LAUNCHER
    return next((kind for kind, program in _PROGRAMS.items() if program in command_line), None)
