"""`python -m trainer.supervisor.machine.liveness WORK_DIR`: the image's HEALTHCHECK.

The supervisor's event loop touches a file again and again: a process that is there but stuck is
not alive. Little is imported, as the check runs beside the training all the time.
"""

import sys
import time
from pathlib import Path

BEAT_SECONDS = 5.0
TIMEOUT_SECONDS = 30.0  # a node whose processors all train may keep the supervisor waiting


def touch_liveness_file(work: Path) -> None:
    """Leave a sign of life."""
    _liveness_file(work).touch()


def is_alive(work: Path, now: float) -> bool:
    """True when the last sign of life is young."""
    try:
        return now - _liveness_file(work).stat().st_mtime < TIMEOUT_SECONDS
    except FileNotFoundError:
        return False


def main() -> int:
    """0 when the supervisor of the work folder is alive."""
    alive = is_alive(Path(sys.argv[1]), time.time())
    sys.stdout.write("alive\n" if alive else f"no sign of life for {TIMEOUT_SECONDS:.0f} s\n")
    return 0 if alive else 1


def _liveness_file(work: Path) -> Path:
    return work / "alive"


if __name__ == "__main__":
    sys.exit(main())
