"""What all ranks agree on before a micro-step: is a stop asked for, a save due, the outbox full.

One rank's own view would tear a checkpoint: every flag is the maximum over all ranks.
"""

import signal
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from trainer.rundir import RunDir
from trainer.watchdog import LONG

OUTBOX_LIMIT = 2  # unsettled saves; beyond, uploading is slower than saving


@dataclass(frozen=True)
class Agreed:
    """The same on every rank."""

    stop: bool
    save: bool
    congested: bool


def patient_group() -> Any:  # noqa: ANN401
    """All ranks, to wait for one that works alone for longer than a collective may take."""
    return dist.new_group(backend="gloo", timeout=timedelta(seconds=LONG))


class Agreement:
    """Collects this rank's flags and agrees on them with the others."""

    def __init__(
        self,
        rundir: RunDir,
        group: Any,  # noqa: ANN401
        saver_busy: Callable[[], bool],
        moved: Callable[[], None],
    ) -> None:
        self._rundir, self._group, self._saver_busy = rundir, group, saver_busy
        self._moved = moved
        self._signalled = False
        signal.signal(signal.SIGTERM, lambda *_: self._on_signal())

    def reach(self, save_due: bool = False) -> Agreed:
        """Collective: every rank calls it at the same place."""
        mine = [self._stop_asked(), save_due, self._congested()]
        flags = torch.tensor(mine, dtype=torch.int32)
        dist.all_reduce(flags, op=dist.ReduceOp.MAX, group=self._group)
        self._moved()
        stop, save, congested = (bool(flag) for flag in flags)
        return Agreed(stop, save, congested)

    def _stop_asked(self) -> bool:
        return self._signalled or self._rundir.stop.exists()

    def _congested(self) -> bool:
        outbox = self._rundir.outbox
        unsettled = sum(p.is_dir() for p in outbox.iterdir()) if outbox.is_dir() else 0
        return self._saver_busy() or unsettled >= OUTBOX_LIMIT

    def _on_signal(self) -> None:
        self._signalled = True
