"""Pin what the images install: `python -m docker.lock`. Needs uv and network access.

Writes docker/*.txt from pyproject.toml, with the hashes of all files of each package and without
index addresses. torch and the packages of its CUDA build are separate, as the CPU variant has
another torch.
"""

import re
import subprocess
import tomllib
from pathlib import Path

from rekindle.local.setup import NODE_WHEEL

HERE = Path(__file__).parent
UV = ("uv", "pip", "compile", "-", "--quiet", "--no-header", "--generate-hashes", "--no-annotate")
PLATFORM = ("--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_36")
OF_TORCH = re.compile(r"(torch|triton|nvidia-.*|cuda-.*)==")
# Of the base and of `local`: what compose.yaml's emulator needs beyond the trainer's packages.
OF_EMULATOR = re.compile(r"(PyJWT|PyYAML|fastapi|trustme|uvicorn)\b")
HEADER = "# By `python -m docker.lock` from pyproject.toml; do not edit.\n"


def main() -> None:
    """Write every lock file."""
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    _write("service.txt", _compile(project["dependencies"] + extras["azureml"]))
    emulator = filter(OF_EMULATOR.match, project["dependencies"] + extras["local"])
    local = _compile([*emulator, NODE_WHEEL])
    trainer = _compile(extras["trainer"])
    _write("torch-cuda.txt", [pin for pin in trainer if OF_TORCH.match(pin)])
    _write("trainer.txt", [pin for pin in trainer if not OF_TORCH.match(pin)])
    _write("local.txt", [pin for pin in local if pin not in trainer])


def pins(text: str) -> list[str]:
    """Return the entries of a lock file, each with its version and hashes."""
    return re.findall(r"^[^\s#].*(?:\n .*)*\n?", text, re.MULTILINE)


def _compile(requirements: list[str]) -> list[str]:
    """Return these requirements and all their dependencies, pinned."""
    text = "\n".join(requirements)
    done = subprocess.run([*UV, *PLATFORM], input=text, capture_output=True, text=True, check=True)
    return pins(done.stdout)


def _write(name: str, packages: list[str]) -> None:
    (HERE / name).write_text(HEADER + "".join(pin.rstrip() + "\n" for pin in packages))


if __name__ == "__main__":
    main()
