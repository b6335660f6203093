"""Exponential moving average of the trained weights, in fp32."""

from typing import Any

import torch

from trainer.checkpoint.fragments import averaged_masters, refresh_weights

PART = 1 << 24  # elements


def start_average(engine: Any) -> None:  # noqa: ANN401 - deepspeed is untyped here
    """Create the average; it begins as a copy of the weights."""
    for _ in averaged_masters(engine):
        pass


def update_average(engine: Any, decay: float, step: int) -> None:  # noqa: ANN401
    """Update the average after training step ``step``: a <- d a + (1 - d) w.

    Early steps use a smaller d, (1 + step) / (10 + step), or a short run would stay near its start
    (as TensorFlow's ExponentialMovingAverage does).
    """
    decay = min(decay, (1 + step) / (10 + step))
    for master, average in averaged_masters(engine):
        average.lerp_(master, 1 - decay)


def swap_average(engine: Any) -> None:  # noqa: ANN401
    """Swap the weights and their average.

    Only an export, or a second swap, may follow: the optimizer state belongs to the weights.
    """
    for master, average in averaged_masters(engine):
        for weights, averages in zip(_parts(master), _parts(average), strict=True):
            saved = weights.clone()
            weights.copy_(averages)
            averages.copy_(saved)
    refresh_weights(engine)


def _parts(flat: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return views of a few elements each, so that a swap needs little memory."""
    parts: tuple[torch.Tensor, ...] = flat.view(-1).split(PART)
    return parts
