"""fp16's dynamic loss scale: it grows until gradients overflow, then falls.

A step whose gradients overflow updates nothing but counts: its rows, number and learning rate are
used up. The scale decides which steps overflow, so it is part of the checkpoint.
"""

from dataclasses import dataclass
from typing import Any

from trainer.contract.wire import Message


@dataclass(frozen=True, kw_only=True)
class LossScale(Message):
    """The state of DeepSpeed's loss scaler; equal on every rank."""

    scale: float
    steps: int  # counted by the scaler
    overflowed_at: int  # the last of them that overflowed; -1: none
    patience: int  # overflows until it falls


def disable_min_scale_error(engine: Any) -> None:  # noqa: ANN401 - deepspeed is untyped here
    """Let `update_parameters` report an overflow at the lowest scale, not DeepSpeed."""
    if (scaler := _scaler(engine)) is not None:
        scaler.raise_error_at_min_scale = False


def read_loss_scale(engine: Any) -> LossScale | None:  # noqa: ANN401
    """Return the state of the scaler; None where nothing is scaled."""
    scaler = _scaler(engine)
    if scaler is None:
        return None
    return LossScale(
        scale=float(scaler.cur_scale),
        steps=scaler.cur_iter,
        overflowed_at=scaler.last_overflow_iter,
        patience=scaler.cur_hysteresis,
    )


def scale_value(engine: Any) -> float | None:  # noqa: ANN401
    """Return the scale; None where nothing is scaled."""
    state = read_loss_scale(engine)
    return state.scale if state else None


def restore_loss_scale(engine: Any, saved: LossScale | None) -> None:  # noqa: ANN401
    """Restore a checkpoint's scaler state; without one the scale keeps its initial value."""
    scaler = _scaler(engine)
    if scaler is None or saved is None:
        return
    scaler.cur_scale, scaler.cur_iter = saved.scale, saved.steps
    scaler.last_overflow_iter, scaler.cur_hysteresis = saved.overflowed_at, saved.patience


def _scaler(engine: Any) -> Any:  # noqa: ANN401
    scaler = getattr(engine.optimizer, "loss_scaler", None)
    return scaler if scaler is not None and scaler.dynamic else None
