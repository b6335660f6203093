"""What all ranks agree on before a micro-step: is a stop asked for, a save due, one on its way.

One rank's own view would tear a checkpoint: every flag is the maximum over all ranks.
"""

import signal
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from trainer.process.watchdog import LONG_SECONDS
from trainer.rundir import AFTER_STEP, RunDir

NOW = ""


@dataclass(frozen=True)
class SyncedFlags:
    """The same on every rank."""

    stop: bool  # before the next micro-step: what is done of the step is dropped
    save: bool
    congested: bool
    end: bool = False  # stop once the step is done

    @property
    def leaving(self) -> bool:
        """No step is begun any more."""
        return self.stop or self.end


def long_timeout_group() -> Any:  # noqa: ANN401
    """All ranks, to wait for one that works alone for longer than a collective may take."""
    return dist.new_group(backend="gloo", timeout=timedelta(seconds=LONG_SECONDS))


class FlagSync:
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

    def reach(self, save_due: bool = False) -> SyncedFlags:
        """Collective: every rank calls it at the same place."""
        asked = self._stop_asked()
        mine = [asked == NOW, save_due, self._saver_busy(), asked == AFTER_STEP]
        flags = torch.tensor(mine, dtype=torch.int32)
        dist.all_reduce(flags, op=dist.ReduceOp.MAX, group=self._group)
        self._moved()
        stop, save, congested, end = (bool(flag) for flag in flags.tolist())
        return SyncedFlags(stop, save, congested, end)

    def stop_asked_here(self) -> bool:
        """Whether this rank has been told; the others are not asked, nor told."""
        self._moved()
        return self._stop_asked() is not None

    def _stop_asked(self) -> str | None:
        """NOW, AFTER_STEP, or None."""
        if self._signalled:
            return NOW
        try:
            return self._rundir.stop.read_text()
        except FileNotFoundError:
            return None

    def _on_signal(self) -> None:
        self._signalled = True
