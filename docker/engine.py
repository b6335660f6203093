"""Run a container engine with docker's command line: docker or podman.

Podman also works with few rights, in a machine without systemd.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# In a machine without systemd, and with few rights: no daemon, no cgroups of its own to limit.
CONFINED = ("--cgroup-manager", "cgroupfs", "--runtime", "runc")
CONFINED_RUN = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096")


class EngineError(Exception):
    """A command of the engine failed; its output is on the screen."""


@dataclass(frozen=True, kw_only=True)
class ContainerEngine:
    """A container engine and its command line."""

    program: tuple[str, ...]
    build_options: tuple[str, ...] = ()
    run_options: tuple[str, ...] = ()
    network: str = "host"

    def build(self, dockerfile: str, tag: str, arguments: Sequence[str]) -> None:
        """Build one image from the repository."""
        values = [word for argument in arguments for word in ("--build-arg", argument)]
        file = str(ROOT / "docker" / dockerfile)
        self.call("build", *self.build_options, *values, "--file", file, "--tag", tag, str(ROOT))

    def call(self, *words: str) -> None:
        """Run a command with its output on the screen; raise EngineError if it fails."""
        if subprocess.run([*self.program, *words], check=False).returncode:
            raise EngineError(f"{' '.join([*self.program, *words])} failed; its reason is above")

    def ask(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run a command and return its result."""
        return subprocess.run([*self.program, *words], capture_output=True, text=True, check=False)

    def run(self, name: str, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run a container as in production: no writable files, no capabilities."""
        return self.ask("run", "--rm", *self._as_production(name), *words)

    @contextmanager
    def running(self, name: str, *words: str) -> Iterator[None]:
        """Run a container in the background and remove it at the end."""
        started = self.ask("run", "--detach", *self._as_production(name), *words)
        try:
            if started.returncode:
                raise EngineError(started.stderr)
            yield
        finally:
            self.ask("rm", "--force", name)

    def _as_production(self, name: str) -> tuple[str, ...]:
        read_only = ("--read-only", "--tmpfs", "/tmp:exec")  # noqa: S108 - the container's own
        powerless = ("--cap-drop", "ALL", "--security-opt", "no-new-privileges")
        network = ("--network", self.network)
        return ("--name", name, *network, *read_only, *powerless, *self.run_options)


def find(
    program: str, *, confined: bool, secrets: Mapping[str, Path | None], volumes: Sequence[str]
) -> ContainerEngine:
    """Return the engine named by ``program``, else the first installed one."""
    named = program or next((name for name in ("docker", "podman") if _works(name)), "")
    if not named:
        sys.exit("no container engine: install docker, or podman with runc (docs/images.md)")
    podman = Path(named.split()[0]).name == "podman"
    build = [*(("--format", "docker") if podman else ())]  # OCI's format has no health checks
    build += ["--isolation", "chroot"] if confined else []
    for name, file in secrets.items():
        build += ["--secret", f"id={name},src={file}"] if file else []
    build += [word for volume in volumes for word in ("--volume", volume)]
    return ContainerEngine(
        program=(*named.split(), *(CONFINED if confined else ())),
        build_options=tuple(build),
        run_options=CONFINED_RUN if confined else (),
    )


def _works(name: str) -> bool:
    if shutil.which(name) is None:
        return False
    return subprocess.run([name, "info"], capture_output=True, check=False).returncode == 0
