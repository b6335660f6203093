"""`python -m trainer.supervisor.machine.liveness WORK_DIR`: the image's HEALTHCHECK.

The supervisor's event loop touches a file repeatedly: a stuck process is not alive. Imports are
few, because the check runs during training.
"""

import sys
import time
from pathlib import Path

BEAT_SECONDS = 5.0
TIMEOUT_SECONDS = 30.0  # a node whose processors all train may keep the supervisor waiting


def touch_liveness_file(work: Path) -> None:
    """Touch the liveness file."""
    _liveness_file(work).touch()


def is_alive(work: Path, now: float) -> bool:
    """Return whether the liveness file is recent."""
    try:
        return now - _liveness_file(work).stat().st_mtime < TIMEOUT_SECONDS
    except FileNotFoundError:
        return False


def main() -> int:
    """Return 0 when the supervisor of the work folder is alive."""
    alive = is_alive(Path(sys.argv[1]), time.time())
    sys.stdout.write("alive\n" if alive else f"no sign of life for {TIMEOUT_SECONDS:.0f} s\n")
    return 0 if alive else 1


def _liveness_file(work: Path) -> Path:
    return work / "alive"


if __name__ == "__main__":
    sys.exit(main())
