"""VMs as process trees of this machine: boot one, see whether it lives, kill all of it.

A VM lives as long as its init holds the lock on FOLDER/alive. The lock is taken before the fork
and handed over, so a VM is never booted twice and never missed, whenever the emulator dies.
"""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

import emulator
from emulator.core.private_files import write_private
from emulator.faults.slow_disk import descendants

RETAINED = {"console.log", "containers"}  # logs outlive the VM; its disk does not
EMPTY_POLLS = 5
PAUSE = 0.002  # seconds between two looks at dying processes


@dataclass(frozen=True, kw_only=True)
class MachineSpec:
    """What a VM is booted from."""

    folder: Path
    user_data: bytes
    metadata_url: str
    host_name: str
    images: dict[str, Any]
    proxied: bool = False  # its way to the world can be cut


class Processes:
    """Boots and kills VMs. Holds only what is needed to reap those that were its own children."""

    def __init__(self) -> None:
        self._children: list[subprocess.Popen[bytes]] = []

    def boot(self, machine: MachineSpec) -> None:
        """Start the VM's init unless it lives already."""
        machine.folder.mkdir(parents=True, exist_ok=True)
        if (lock := _take_lock(machine.folder)) is None:
            return
        try:
            _write_files(machine)
            child = _start_init(machine, lock)
            os.pwrite(lock, f"{child.pid}\n".encode(), 0)
            self._children.append(child)
        finally:
            os.close(lock)

    def reap(self) -> bool:
        """Collect the exit codes of inits that ended; say whether none is left."""
        self._children = [child for child in self._children if child.poll() is None]
        return not self._children


def alive(folder: Path) -> bool:
    """Whether the VM's init runs."""
    if not (folder / "alive").exists():
        return False
    lock = _take_lock(folder)
    if lock is not None:
        os.close(lock)
    return lock is None


def init_pid(folder: Path) -> int | None:
    """Return the process id of the VM's init, or None if it is not running."""
    while alive(folder):
        if text := (folder / "alive").read_text().strip():
            return int(text)
        time.sleep(PAUSE)  # the emulator was killed at the fork; the init will write it
    return None


def kill(folder: Path, metadata_url: str, *, wipe: bool = True) -> None:
    """Kill every process of the VM, then wipe its disk unless it is to boot again from it.

    Harmless when repeated.
    """
    if (pid := init_pid(folder)) is not None and _belongs(pid, metadata_url):
        kill_tree(pid)
    while strays := _strays(metadata_url):
        _kill_all(strays)
    if wipe:
        _wipe(folder)


def note_crash(folder: Path) -> None:
    """Note that a VM dies without Azure noticing, until its next boot."""
    (folder / "crashed").touch()


def crashed(folder: Path) -> bool:
    """Whether Azure believes it to run though nothing of it does."""
    return (folder / "crashed").exists()


def freeze(folder: Path, metadata_url: str) -> None:
    """Stop the whole VM, init too, until `thaw`; nothing in it is lost."""
    _signal_all(folder, metadata_url, signal.SIGSTOP)


def thaw(folder: Path, metadata_url: str) -> None:
    """Let it go on."""
    _signal_all(folder, metadata_url, signal.SIGCONT)


def kill_tree(pid: int) -> None:
    """Kill all descendants of a subreaper, then itself.

    It is stopped first, so it starts nothing. Orphans below move up to it, so they are found
    by the next look; some looks that find none are the end (one can miss a fork in between).
    """
    try:
        root = psutil.Process(pid)
        root.send_signal(signal.SIGSTOP)
        empty = 0
        while empty < EMPTY_POLLS:
            victims = [p for p in _below(root) if _runs(p)]
            _kill_all(victims)
            empty = 0 if victims else empty + 1
    except psutil.NoSuchProcess:
        return  # it died by itself: what it left is found by its environment
    _kill_all([root])


def _signal_all(folder: Path, metadata_url: str, number: signal.Signals) -> None:
    """Signal the init first, so that it adopts nothing unseen, then its descendants."""
    pid = init_pid(folder)
    if pid is None or not _belongs(pid, metadata_url):
        return
    try:
        root = psutil.Process(pid)
        root.send_signal(number)
        below = root.children(recursive=True)
    except psutil.NoSuchProcess:
        return
    for process in below:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def _below(root: psutil.Process) -> list[psutil.Process]:
    """Return all descendants.

    On Linux the kernel lists them. To look at every process takes so long, on a busy machine, that
    a chain of forks goes on unseen meanwhile.
    """
    if sys.platform != "linux":
        return root.children(recursive=True)
    processes = []
    for pid in descendants(root.pid):
        with suppress(psutil.NoSuchProcess):
            processes.append(psutil.Process(pid))
    return processes


def _kill_all(victims: list[psutil.Process]) -> None:
    for victim in victims:
        with suppress(psutil.NoSuchProcess):
            victim.kill()
    while any(_runs(victim) for victim in victims):
        time.sleep(PAUSE)


def _runs(process: psutil.Process) -> bool:
    """Whether it still runs; a zombie does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _strays(metadata_url: str) -> list[psutil.Process]:
    """Return processes of the VM that are no longer below its init, found by their environment."""
    processes = []
    for pid in psutil.pids():
        # One that is gone, or another user's, is none of ours.
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied, OSError):
            process = psutil.Process(pid)
            if process.environ().get("REKINDLE_METADATA_URL") == metadata_url and _runs(process):
                processes.append(process)
    return processes


def _belongs(pid: int, metadata_url: str) -> bool:
    """Whether the process is of this VM: an id alone may have been given to another since."""
    try:
        return psutil.Process(pid).environ().get("REKINDLE_METADATA_URL") == metadata_url
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def _take_lock(folder: Path) -> int | None:
    """Lock FOLDER/alive and return it, or None while an init holds it."""
    lock = os.open(folder / "alive", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def _write_files(machine: MachineSpec) -> None:
    os.truncate(machine.folder / "alive", 0)
    (machine.folder / "crashed").unlink(missing_ok=True)
    write_private(machine.folder / "user-data", machine.user_data)  # a bootstrap token is in it
    vm = {
        "metadata_url": machine.metadata_url,
        "host_name": machine.host_name,
        "path": f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}",
        "images": machine.images,
        "proxied": machine.proxied,
    }
    (machine.folder / "vm.json").write_text(json.dumps(vm))


def _start_init(machine: MachineSpec, lock: int) -> subprocess.Popen[bytes]:
    with (machine.folder / "console.log").open("ab") as console:
        return subprocess.Popen(
            [sys.executable, "-m", "emulator.machines.vm", str(machine.folder), str(lock)],
            pass_fds=[lock],
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            cwd=machine.folder,
            env={
                "PYTHONPATH": str(Path(emulator.__path__[0]).parent),
                "REKINDLE_METADATA_URL": machine.metadata_url,
                "HOME": str(machine.folder),  # by which a stack finds what its VMs left
                "LANG": "C.UTF-8",
            },
        )


def _wipe(folder: Path) -> None:
    for entry in folder.iterdir() if folder.exists() else ():
        if entry.name in RETAINED:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
