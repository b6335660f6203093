"""The init process of one emulated VM: `python -m emulator.vm FOLDER LOCK_FD`.

It holds the lock on FOLDER/alive as long as it lives, boots from FOLDER/user-data, and adopts
every orphan below it, so that killing the VM finds them all. It outlives the emulator.
"""

import ctypes
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

from emulator.cloud_init import BadUserData, Boot, parse

SET_CHILD_SUBREAPER = 36  # prctl(2)
SHIM = Path(__file__).with_name("docker_shim.py")
# What would reach beyond the VM's folder to the machine beneath does nothing.
HARMLESS = (
    *("systemctl", "lsblk", "mdadm", "mkfs.ext4", "mount", "umount", "shutdown", "reboot"),
    *("chown", "install"),
)


def main(folder: Path, lock: int) -> None:
    """Boot, then reap orphans until killed."""
    os.set_inheritable(lock, False)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    _adopt_orphans()
    try:
        boot = parse((folder / "user-data").read_bytes())
    except BadUserData as error:
        _say(f"cloud-init: {error}")
        boot = Boot()
    _run(boot, folder)
    _reap()
    while True:  # without children none can come: nothing is left to do but to be
        signal.pause()


def _adopt_orphans() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _run(boot: Boot, folder: Path) -> None:
    for name in boot.ignored:
        _say(f"cloud-init: the emulator ignores {name!r}")
    root = folder / "fs"
    for file in boot.files:
        target = root / file.path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.content)
        target.chmod(file.mode)
    environment = _environment(folder)
    script = folder / "boot.sh"
    script.write_text(boot.script_below(str(root)))
    child = subprocess.Popen(["/bin/sh", str(script)], env=environment, cwd=folder)
    child.returncode = _reap(child.pid)
    _say(f"cloud-init: the boot script ended with {child.returncode}")


def _environment(folder: Path) -> dict[str, str]:
    """The VM's own environment; its PATH begins with the shims."""
    vm = json.loads((folder / "vm.json").read_text())
    shims = folder / "shims"
    shims.mkdir(exist_ok=True)
    words = [sys.executable, "-I", "-S", str(SHIM), str(folder)]
    _program(shims / "docker", f'exec {shlex.join(words)} "$@"')
    for name in HARMLESS:
        _program(shims / name, "exit 0")
    _program(shims / "uptime", f"echo {shlex.quote(_up_since())}")  # as `uptime -s`
    return {
        "PATH": f"{shims}:{vm['path']}",
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "REKINDLE_METADATA_URL": vm["metadata_url"],
    }


def _up_since() -> str:
    """The machine beneath is up for longer than this one."""
    return time.strftime("%Y-%m-%d %H:%M:%S")


def _program(file: Path, line: str) -> None:
    file.write_text(f"#!/bin/sh\n{line}\n")
    file.chmod(0o755)


def _reap(until: int = 0) -> int:
    """Collect ended children until ``until`` is among them (its exit code) or none is left."""
    while True:
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return 0
        if pid == until:
            return os.waitstatus_to_exitcode(status)


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
