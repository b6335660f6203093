"""A VM whose clock is off, by way of libfaketime: only wall clocks, as a wrong time server would.

libfaketime must be in a process from its start, so that VMs have it where the emulator was
started with `--faketime`; what the clock shows can be changed at any time after.
Standard library only.
"""

import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

LIBRARIES = (
    "/usr/lib/*/faketime/libfaketimeMT.so.1",
    "/usr/lib*/faketime/libfaketimeMT.so.1",
    "/usr/local/lib/faketime/libfaketimeMT.so.1",
)
INSTALL = (
    "apt-get install faketime, newer than 0.9.10: under that one no Python from 3.11 on can sleep "
    "(wolfcw/libfaketime issue 426)"
)
SLEEP = "import time; time.sleep(0.001)"
SEEN_WITHIN_SECONDS = 1


@cache
def library() -> str:
    """libfaketime's file, or nothing where none is installed under which programs can sleep."""
    if sys.platform != "linux":
        return ""
    patterns = (pattern.lstrip("/") for pattern in LIBRARIES)
    found = (str(file) for pattern in patterns for file in Path("/").glob(pattern))
    return next((file for file in found if _lets_sleep(file)), "")


def environment(folder: Path, library_file: str) -> dict[str, str]:
    """What a process needs to see the VM's own time."""
    return {
        "LD_PRELOAD": library_file,
        "FAKETIME_TIMESTAMP_FILE": str(folder / "clock"),
        "FAKETIME_CACHE_DURATION": str(SEEN_WITHIN_SECONDS),
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


def set_ahead(folder: Path, seconds: float) -> None:
    """Set the VM's clock so far ahead, or (less than 0) behind."""
    fresh = folder / "clock.new"
    fresh.write_text(f"{seconds:+f}s\n")
    fresh.replace(folder / "clock")


def _lets_sleep(library_file: str) -> bool:
    with TemporaryDirectory() as folder:
        set_ahead(Path(folder), 0.0)
        seen = environment(Path(folder), library_file)
        sleeper = subprocess.run(
            [sys.executable, "-I", "-S", "-c", SLEEP], env=seen, check=False, capture_output=True
        )
    return sleeper.returncode == 0
