"""The base image made from Debian's packages, for machines that cannot pull it: needs root."""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from docker.engine import ROOT, Engine

SUITE = "bookworm"
# What Debian's slim images leave out as well.
UNNEEDED = ("usr/share/doc", "usr/share/man", "usr/share/locale", "var/cache/apt", "var/lib/apt")


def name() -> str:
    """The base image that the Dockerfiles name, with the host that docker means by it."""
    text = (ROOT / "docker" / "service.Dockerfile").read_text()
    named = re.search(r"^ARG BASE=(\S+)$", text, re.MULTILINE)
    assert named is not None
    return f"docker.io/library/{named[1]}"


def make(engine: Engine) -> None:
    """Make it unless the engine has it."""
    if engine.ask("image", "inspect", name()).returncode == 0:
        return
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
        root = Path(scratch) / "root"
        archive = Path(scratch) / "base.tar"
        subprocess.run(["debootstrap", "--variant=minbase", SUITE, str(root)], check=True)
        for folder in UNNEEDED:
            shutil.rmtree(root / folder, ignore_errors=True)
        subprocess.run(["tar", "-C", str(root), "-cf", str(archive), "."], check=True)
        engine.call("import", str(archive), name())
