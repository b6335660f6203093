"""Build the base image from Debian's packages, for machines that cannot pull it. Needs root."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from docker.engine import ContainerEngine

SUITE = "bookworm"
NAME = f"localhost/rekindle-base:{SUITE}"
# What Debian's slim images leave out as well.
UNNEEDED = ("usr/share/doc", "usr/share/man", "usr/share/locale", "var/cache/apt", "var/lib/apt")


def make(engine: ContainerEngine) -> str:
    """Create the base image unless the engine has it; return its name."""
    if engine.ask("image", "inspect", NAME).returncode == 0:
        return NAME
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
        root = Path(scratch) / "root"
        archive = Path(scratch) / "base.tar"
        subprocess.run(["debootstrap", "--variant=minbase", SUITE, str(root)], check=True)
        for folder in UNNEEDED:
            shutil.rmtree(root / folder, ignore_errors=True)
        _add_fixes(root / "etc" / "apt" / "sources.list")
        subprocess.run(["tar", "-C", str(root), "-cf", str(archive), "."], check=True)
        engine.call("import", str(archive), NAME)
    return NAME


def _add_fixes(sources: Path) -> None:
    """Add the archives with Debian's fixes, as debootstrap adds the main one only."""
    _, mirror, suite, component = sources.read_text().split()[:4]
    fixes = ((mirror, f"{suite}-updates"), (f"{mirror.rstrip('/')}-security", f"{suite}-security"))
    with sources.open("a") as file:
        file.writelines(f"deb {archive} {name} {component}\n" for archive, name in fixes)
