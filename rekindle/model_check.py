"""Check a base model before it is staged, by `trainer.check_model` in its own process."""

import json
import os
import subprocess
import sys
from pathlib import Path

CHECKS_VERSION = 1  # version of the checks, written into HEAD; raise it when they get stricter


class StagingError(Exception):
    """The folder does not hold a usable model."""


def check_model(folder: Path) -> list[str]:
    """Return warnings about the model in the folder; raise StagingError with all faults."""
    result = subprocess.run(
        [sys.executable, "-m", "trainer.check_model", str(folder.absolute())],
        env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        last = (result.stderr.strip().splitlines() or ["no output"])[-1]
        raise StagingError(
            f"the model check failed with exit code {result.returncode}: {last}. Run "
            f"`python -m trainer.check_model {folder}` for details"
        )
    report = json.loads(result.stdout)
    if report["faults"]:
        raise StagingError("\n".join(report["faults"]))
    return [str(warning) for warning in report["warnings"]]
