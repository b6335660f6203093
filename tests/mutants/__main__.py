"""`python -m tests.mutants` (`make mutants`): plant each fault and run the test that catches it.

Each fault is one textual change to a copy of the repository. The tests must pass in a copy without
any fault first. Exit 1: a fault lives, or a test fails without one.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.faults import Fault, chosen, planted, read_faults

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    *("bench", "contract", "docker", "emulator", "migrations", "rekindle", "rendering"),
    *("service", "tests", "trainer"),
)
FILES = ("pyproject.toml",)
NODE_MODULES = "node_modules"  # Azurite
TESTS_FAILED = (1, 2)  # pytest's exit status; 2: xdist's workers were stopped at the first one


def main(arguments: Sequence[str] | None = None) -> int:
    """Plant the faults, several at a time, and print what came of each."""
    options = _options(arguments)
    faults = chosen(read_faults(), options.only)
    if not faults:
        _say(f"No fault has {options.only!r} in its name, its file or its test.")
        return 1
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        survivors = _living(Path(name), faults, options.jobs)
    caught = len(faults) - len(survivors)
    _say(f"{caught} of {len(faults)} caught, {time.monotonic() - started:.0f} s")
    return 1 if survivors else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--jobs", type=int, default=cores, help="faults at a time; default: cores")
    parser.add_argument("--only", default="", help="text in a fault's name, its file or its test")
    return parser.parse_args(arguments)


def _living(folder: Path, faults: Sequence[Fault], jobs: int) -> list[Fault]:
    """Return the faults that their tests do not catch."""
    original = folder / "sound"
    _copy(original)
    for fault in faults:
        planted((original / fault.file).read_text(), fault)  # before minutes of tests
    _say(f"Faults: {len(faults)}. Their tests run without any fault first")
    if not _passes(original, sorted({fault.caught_by for fault in faults}), "-n", str(jobs)):
        raise SystemExit("One of the tests fails without any fault: mend that first.")
    copies: SimpleQueue[Path] = SimpleQueue()
    for number in range(jobs):
        copies.put(shutil.copytree(original, folder / str(number), symlinks=True))
    survivors = []
    with ThreadPoolExecutor(jobs) as pool:
        runs = {pool.submit(_is_caught, original, copies, fault): fault for fault in faults}
        for run in as_completed(runs):
            fault = runs[run]
            if not run.result():
                survivors.append(fault)
            verdict = "caught" if run.result() else f"LIVES in spite of {fault.caught_by}"
            _say(f"{verdict}: {fault.fault}")
    return survivors


def _is_caught(original: Path, copies: SimpleQueue[Path], fault: Fault) -> bool:
    """Plant the fault in a copy that is free, and put the copy back as it was."""
    copy = copies.get()
    try:
        (copy / fault.file).write_text(planted((original / fault.file).read_text(), fault))
        return not _passes(copy, [fault.caught_by])
    finally:
        shutil.copy2(original / fault.file, copy / fault.file)  # as old as its byte code
        copies.put(copy)


def _copy(folder: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=ignored)
    for file in FILES:
        shutil.copy2(ROOT / file, folder / file)
    (folder / NODE_MODULES).symlink_to(ROOT / NODE_MODULES)


def _passes(folder: Path, tests: Sequence[str], *extra: str) -> bool:
    """Tell whether the tests pass; SystemExit where they cannot run.

    ``folder`` comes before what is installed. Byte code is written for the sound copy alone: that
    of a planted fault could be taken for that of its file.
    """
    environment = os.environ | {"PYTHONPATH": str(folder)}  # noqa: TID251 - an entry point
    if not extra:
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
    options = ("-q", "-x", "-p", "no:cacheprovider", f"--basetemp={folder}/tmp", *extra)
    command = [sys.executable, "-m", "pytest", *options, *tests]
    process = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, check=False, text=True
    )
    if process.returncode == 0:
        return True
    *_, summary = process.stdout.splitlines() or [""]
    if process.returncode in TESTS_FAILED and " failed" in summary:
        return False
    output = f"{process.stdout[-2000:]}{process.stderr[-2000:]}"
    raise SystemExit(f"pytest could not run {tests[0]} (of {len(tests)}):\n{output}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
