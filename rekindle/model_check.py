"""Check a base model before it is staged, in a process of the trainer's: `trainer.check_model`."""

import json
import os
import subprocess
import sys
from pathlib import Path

CHECKS = 1  # written into HEAD; raise it when the checks get stricter


class CannotStage(Exception):
    """The folder does not hold a model that we would run."""


def check_model(folder: Path) -> list[str]:
    """Return the warnings about the model in the folder, or raise CannotStage with all faults."""
    ended = subprocess.run(
        [sys.executable, "-m", "trainer.check_model", str(folder.absolute())],
        env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        last = (ended.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise CannotStage(
            f"the check of the model ended with status {ended.returncode}: {last}. Run "
            f"`python -m trainer.check_model {folder}` to see why"
        )
    found = json.loads(ended.stdout)
    if found["faults"]:
        raise CannotStage("\n".join(found["faults"]))
    return [str(warning) for warning in found["warnings"]]
