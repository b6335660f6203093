"""A trainer that hangs is ended, and shows where it hung."""

import subprocess
import sys
from pathlib import Path

from trainer.process.watchdog import LONG_SECONDS, MIN_SECONDS, PAUSE_FACTOR

HANGS = """
import threading, time
from trainer.process.watchdog import Watchdog
watchdog = Watchdog(time.monotonic, long=60.0, floor=0.3)
watchdog.record_progress()
watchdog.record_progress()
def stuck():
    threading.Event().wait(60.0)
stuck()
"""


def test_a_trainer_that_stands_still_ends_with_all_its_stacks_printed() -> None:
    result = subprocess.run(
        [sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=250, check=False
    )

    assert result.returncode == 1
    assert "Timeout" in result.stderr
    assert "in stuck" in result.stderr


EXPORTS = """
import sys, threading
from datetime import timedelta
import torch.distributed as dist
from trainer.process.sync_flags import long_timeout_group
rank, store = int(sys.argv[1]), sys.argv[2]
dist.init_process_group(
    "gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=timedelta(seconds=2)
)
group = long_timeout_group()
dist.barrier()
if rank == 0:
    threading.Event().wait(2.5)  # it writes the model, for longer than a collective may take
dist.barrier(group)
print("together")
"""


def test_ranks_wait_for_one_that_exports_for_longer_than_a_collective_may_take(
    tmp_path: Path,
) -> None:
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", EXPORTS, str(rank), str(tmp_path / "store")],
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]

    assert [rank.communicate(timeout=250)[0] for rank in ranks] == ["together\n"] * 2


ASKS = """
import itertools, sys
from trainer.process.watchdog import Watchdog
times = itertools.accumulate([0.0] + [float(sys.argv[1])] * 9)
watchdog = Watchdog(lambda: next(times))
patience = [watchdog.timeout_seconds]
for _ in range(9):
    watchdog.record_progress()
print(patience[0], watchdog.timeout_seconds)
"""


def test_its_patience_is_a_multiple_of_the_usual_pause_and_never_below_the_floor() -> None:
    assert _timeout(1.0) == [LONG_SECONDS, MIN_SECONDS]
    assert _timeout(100.0) == [LONG_SECONDS, PAUSE_FACTOR * 100.0]


def _timeout(pause: float) -> list[float]:
    """Asked in a process of its own: a watchdog that is armed would end this one."""
    result = subprocess.run(
        [sys.executable, "-c", ASKS, str(pause)],
        capture_output=True,
        text=True,
        timeout=250,
        check=True,
    )
    return [float(number) for number in result.stdout.split()]
