"""Check a base model before it is staged, by `trainer.check_model` in its own process."""

import json
import os
import subprocess
import sys
from pathlib import Path

CHECKS = 1  # version of the checks, written into HEAD; raise it when they get stricter


class CannotStage(Exception):
    """The folder does not hold a usable model."""


def check_model(folder: Path) -> list[str]:
    """Return warnings about the model in the folder; raise CannotStage with all faults."""
    ended = subprocess.run(
        [sys.executable, "-m", "trainer.check_model", str(folder.absolute())],
        env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        last = (ended.stderr.strip().splitlines() or ["no output"])[-1]
        raise CannotStage(
            f"the model check failed with exit code {ended.returncode}: {last}. Run "
            f"`python -m trainer.check_model {folder}` for details"
        )
    found = json.loads(ended.stdout)
    if found["faults"]:
        raise CannotStage("\n".join(found["faults"]))
    return [str(warning) for warning in found["warnings"]]
