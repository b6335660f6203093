"""Flags that all ranks agree on before a micro-step, and sums over all ranks.

The flags: stop requested, save due, save in progress. Every flag is the maximum over all ranks:
one rank's view alone would tear a checkpoint.
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
    """The flags; equal on every rank."""

    stop: bool  # before the next micro-step: the partial step is dropped
    save: bool
    congested: bool
    end: bool = False  # stop once the step is done

    @property
    def is_stopping(self) -> bool:
        """Whether no further step begins."""
        return self.stop or self.end


def long_timeout_group() -> Any:  # noqa: ANN401
    """Make a group of all ranks whose collectives may wait for `LONG_SECONDS`."""
    return dist.new_group(backend="gloo", timeout=timedelta(seconds=LONG_SECONDS))


class FlagSync:
    """Collects this rank's flags and syncs them with the others."""

    def __init__(
        self,
        rundir: RunDir,
        group: Any,  # noqa: ANN401
        saver_busy: Callable[[], bool],
        record_progress: Callable[[], None],
    ) -> None:
        self._rundir, self._group, self._saver_busy = rundir, group, saver_busy
        self._record_progress = record_progress
        self._signalled = False
        signal.signal(signal.SIGTERM, lambda *_: self._on_signal())

    def sync_flags(self, save_due: bool = False) -> SyncedFlags:
        """Return the flags of all ranks; collective, so every rank calls it at the same place."""
        request = self._requested_stop()
        own_flags = [request == NOW, save_due, self._saver_busy(), request == AFTER_STEP]
        flags = torch.tensor(own_flags, dtype=torch.int32)
        dist.all_reduce(flags, op=dist.ReduceOp.MAX, group=self._group)
        self._record_progress()
        stop, save, congested, end = (bool(flag) for flag in flags.tolist())
        return SyncedFlags(stop, save, congested, end)

    def is_stop_requested_here(self) -> bool:
        """Return whether this rank was asked to stop, without asking the others."""
        self._record_progress()
        return self._requested_stop() is not None

    def _requested_stop(self) -> str | None:
        """Return NOW, AFTER_STEP or None."""
        if self._signalled:
            return NOW
        try:
            return self._rundir.stop.read_text()
        except FileNotFoundError:
            return None

    def _on_signal(self) -> None:
        self._signalled = True


def sum_over_ranks(*values: torch.Tensor | float, device: torch.device) -> list[float]:
    """Add up each value over all ranks, in double precision; collective."""
    totals = torch.stack([torch.as_tensor(v, dtype=torch.float64, device=device) for v in values])
    dist.all_reduce(totals)
    return [float(total) for total in totals.tolist()]
