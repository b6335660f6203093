"""The init process of one emulated VM: `python -m emulator.machines.vm FOLDER LOCK_FD`.

It holds the lock on FOLDER/alive as long as it lives, boots from FOLDER/user-data, and adopts
every orphan below it, so that killing the VM finds them all. It outlives the emulator. What is
done to the VM (`faults.harm`) is done here, so that it needs no root and ends with the VM.
"""

import ctypes
import json
import os
import queue
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

from emulator.faults import harm
from emulator.faults.proxy import Proxy
from emulator.faults.slow_disk import Brake
from emulator.machines.cloud_init import BadUserData, Boot, parse

SET_CHILD_SUBREAPER = 36  # prctl(2)
NEW_HOST_NAME = 0x04000000  # CLONE_NEWUTS of unshare(2)
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
    vm = json.loads((folder / "vm.json").read_text())
    _take_host_name(vm["host_name"])
    environment = _environment(folder, vm, _listen_to_harm(folder, vm))
    (folder / "environment.json").write_text(json.dumps(environment))  # for `run_command`
    try:
        boot = parse((folder / "user-data").read_bytes())
    except BadUserData as error:
        _log(f"cloud-init: {error}")
        boot = Boot()
    _run(boot, folder, environment)
    _reap()
    while True:  # without children none can come: nothing is left to do but to be
        signal.pause()


def _adopt_orphans() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _take_host_name(name: str) -> None:
    """Have a host name of our own, which no resolver knows; that of the machine unless we are root.

    So a node that needs its name to be resolved fails here too.
    """
    if sys.platform == "linux" and ctypes.CDLL(None).unshare(NEW_HOST_NAME) == 0:
        socket.sethostname(name)


def _listen_to_harm(folder: Path, vm: dict[str, Any]) -> Proxy | None:
    """Do to this VM what FOLDER/harm.json says, now and whenever it changes."""
    proxy = Proxy(vm["metadata_url"].split("/")[2]) if vm["proxied"] else None
    brake = Brake(os.getpid())
    if proxy:
        proxy.start()

    def obey() -> None:
        orders = harm.read(folder)
        if proxy:
            proxy.obey(orders)
        brake.limit(orders.write_limit)
        harm.obey(folder, orders.change)

    def obey_all() -> None:
        while woken.get():
            obey()

    # One after the other, in a thread: a handler of signals may be interrupted by itself.
    woken: queue.SimpleQueue[bool] = queue.SimpleQueue()
    signal.signal(harm.WAKE_UP, lambda *_: woken.put(True))
    obey()
    threading.Thread(target=obey_all, name="harm", daemon=True).start()
    return proxy


def _run(boot: Boot, folder: Path, environment: dict[str, str]) -> None:
    """Carry out cloud-init; after the first boot only what is for every one."""
    root = folder / "fs"
    shutil.rmtree(root / "dev" / "shm", ignore_errors=True)  # memory: a boot begins without
    for number, script in enumerate(boot.early):
        _execute(boot.below(str(root), script), folder / f"early-{number}.sh", environment)
    if (folder / "cloud-init-done").exists():
        _execute("exec docker start --all", folder / "boot.sh", environment)
        return
    for name in boot.ignored:
        _log(f"cloud-init: the emulator ignores {name!r}")
    for file in boot.files:
        target = root / file.path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(
            target, "ab" if file.append else "wb", opener=partial(os.open, mode=file.mode)
        ) as out:
            out.write(file.content)
        target.chmod(file.mode)
    (folder / "cloud-init-done").touch()  # as cloud-init: commands that were begun are not again
    for number, script in enumerate(boot.scripts):
        _execute(boot.below(str(root), script), folder / f"boot-{number}.sh", environment)


def _execute(script: str, file: Path, environment: dict[str, str]) -> None:
    file.write_text(script)
    file.chmod(0o755)
    command = [str(file)] if script.startswith("#!") else ["/bin/sh", str(file)]
    child = subprocess.Popen(command, env=environment, cwd=file.parent)
    child.returncode = _reap(child.pid)
    _log(f"cloud-init: the boot script ended with {child.returncode}")


def _environment(folder: Path, vm: dict[str, Any], proxy: Proxy | None) -> dict[str, str]:
    """Write the shims and return the VM's environment, whose PATH begins with them."""
    shims = folder / "shims"
    shims.mkdir(exist_ok=True)
    command = [sys.executable, "-I", "-S", str(SHIM), str(folder)]
    _program(shims / "docker", f'exec {shlex.join(command)} "$@"')
    for name in HARMLESS:
        _program(shims / name, "exit 0")
    _program(shims / "uptime", f"echo {shlex.quote(_up_since(folder))}")  # as `uptime -s`
    return {
        "PATH": f"{shims}:{vm['path']}",
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "REKINDLE_METADATA_URL": vm["metadata_url"],
        **(_by_proxy(proxy.url, vm["metadata_url"]) if proxy else {}),
    }


def _by_proxy(url: str, metadata_url: str) -> dict[str, str]:
    """Names in both cases: curl knows HTTP_PROXY only in small letters, others the other one."""
    spared = f"169.254.169.254,{metadata_url.split('/')[2]}"
    names = {"http_proxy": url, "https_proxy": url, "no_proxy": spared}
    return names | {name.upper(): value for name, value in names.items()}


def _up_since(folder: Path) -> str:
    """Return the time of boot as `uptime -s` prints it: now."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime())


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


def _log(line: str) -> None:
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
