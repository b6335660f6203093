"""Detect loss spikes: losses far above the median for several steps. Warn, or end the run.

The loss is summed over all ranks, so all ranks decide alike. The history is in the checkpoint, so a
resumed run decides like one that never stopped.
"""

import math
from dataclasses import dataclass
from statistics import median

from trainer.contract import RunSpec, SpikeGuard, StepMetrics
from trainer.contract.wire import Message
from trainer.process.non_retryable import NonRetryableError

MIN_LOSSES = 10  # losses until any is judged


@dataclass(frozen=True, kw_only=True)
class LossHistory(Message):
    """Recent losses, with which the next loss is compared."""

    losses: tuple[float, ...] = ()  # the newest ones, the last is the newest
    above: int = 0  # of them in a row, up to the newest, that were too high

    def with_loss(self, loss: float, guard: SpikeGuard) -> "LossHistory":
        """Return the history with one more loss."""
        median_loss = self.median_loss
        high = median_loss is not None and loss > guard.factor * median_loss
        return LossHistory(
            losses=(*self.losses, loss)[-guard.window :], above=self.above + 1 if high else 0
        )

    @property
    def median_loss(self) -> float | None:
        """The median; None while too few losses are known, or where it is not positive."""
        value = median(self.losses) if len(self.losses) >= MIN_LOSSES else 0.0
        return value if value > 0 else None


class LossSpikeError(NonRetryableError):
    """The loss was too high for too long; the same rows would spike again on any machine."""


def require_valid_guard(spec: RunSpec) -> None:
    """Raise NonRetryableError for a spike guard that cannot detect a spike."""
    guard = spec.spike_guard
    if guard is None:
        return
    if spec.method == "reinforcement":
        raise NonRetryableError(
            "a loss made of advantages is about 0 and has no spikes: no `spike_guard`"
        )
    if guard.on_spike not in ("warn", "stop"):
        raise NonRetryableError(f"on_spike {guard.on_spike!r} is not known; use 'warn' or 'stop'")
    if guard.factor <= 1 or guard.steps < 1 or guard.window < MIN_LOSSES:
        raise NonRetryableError(
            f"a spike is more than 1 times the median of {MIN_LOSSES} steps or more, for 1 step or "
            "more"
        )


def record_loss(
    guard: SpikeGuard | None, history: LossHistory | None, loss: float
) -> tuple[LossHistory | None, float | None]:
    """Return the history after this loss and, on a spike, its ratio to the median.

    A step without targets has no loss and changes nothing.
    """
    if guard is None:
        return None, None
    if math.isnan(loss):
        return history, None
    before = history or LossHistory()
    updated = before.with_loss(loss, guard)
    median_loss = before.median_loss
    return (
        updated,
        loss / median_loss if median_loss is not None and updated.above >= guard.steps else None,
    )


def spike_message(guard: SpikeGuard | None, metrics: StepMetrics) -> str:
    """Return what happened, and what to do."""
    assert guard is not None
    assert metrics.spike is not None
    return (
        f"the loss of step {metrics.step} is {metrics.loss:.4g}, {metrics.spike:.1f} times the "
        f"median of the steps before it, and it has been above {guard.factor:g} times for "
        f"{guard.steps} steps: lower the learning rate, or look at the rows that came just before"
    )


def require_no_spike(guard: SpikeGuard | None, metrics: StepMetrics) -> None:
    """Raise LossSpikeError on a spike where the run spec says so."""
    if guard is not None and guard.on_spike == "stop" and metrics.spike is not None:
        raise LossSpikeError(spike_message(guard, metrics))
