"""The process that a kill strikes, found before the moment comes.

`rekindle.local.faults` looks for it when it is called, which takes longer than a save does.
"""

import psutil

from bench.recovery.plan import Kind
from bench.recovery.sight import Vm
from rekindle.local.running_stack import RANK, SUPERVISOR, TORCHRUN

_PROGRAMS = {Kind.SUPERVISOR: SUPERVISOR, Kind.TRAINER: RANK, Kind.LAUNCHER: TORCHRUN}


def on_machine(vm: Vm, kind: Kind) -> psutil.Process | None:
    """The process of that kind, if it runs there just now."""
    if vm.pid is None:
        return None
    try:
        below = psutil.Process(vm.pid).children(recursive=True)  # it adopts every orphan
    except psutil.NoSuchProcess:
        return None
    return next((p for p in below if _kind(p) is kind), None)


def alive(process: psutil.Process) -> bool:
    """Whether it still runs."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _kind(process: psutil.Process) -> Kind | None:
    """What it is by its command line; the launcher's names the rank's program as well."""
    try:
        words = process.cmdline()
    except psutil.Error:
        return None
    if TORCHRUN in words:
        return Kind.LAUNCHER
    return next((kind for kind, program in _PROGRAMS.items() if program in words), None)
