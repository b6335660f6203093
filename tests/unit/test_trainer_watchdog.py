"""A trainer that hangs is ended, and shows where it hung."""

import subprocess
import sys

from trainer.watchdog import FLOOR, LONG, TIMES

HANGS = """
import threading, time
from trainer.watchdog import Watchdog
watchdog = Watchdog(time.monotonic, long=60.0, floor=0.3)
watchdog.moved()
watchdog.moved()
def stuck():
    threading.Event().wait(60.0)
stuck()
"""


def test_a_trainer_that_stands_still_ends_with_all_its_stacks_printed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=50, check=False
    )

    assert done.returncode == 1
    assert "Timeout" in done.stderr
    assert "in stuck" in done.stderr


ASKS = """
import itertools, sys
from trainer.watchdog import Watchdog
times = itertools.accumulate([0.0] + [float(sys.argv[1])] * 9)
watchdog = Watchdog(lambda: next(times))
patience = [watchdog.patience]
for _ in range(9):
    watchdog.moved()
print(patience[0], watchdog.patience)
"""


def test_its_patience_is_a_multiple_of_the_usual_pause_and_never_below_the_floor() -> None:
    assert _patience(1.0) == [LONG, FLOOR]
    assert _patience(100.0) == [LONG, TIMES * 100.0]


def _patience(pause: float) -> list[float]:
    """Asked in a process of its own: a watchdog that is armed would end this one."""
    done = subprocess.run(
        [sys.executable, "-c", ASKS, str(pause)],
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )
    return [float(number) for number in done.stdout.split()]
