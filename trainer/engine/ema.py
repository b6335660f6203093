"""An exponential moving average of what is trained, in fp32: steadier than the last step is."""

from typing import Any

import torch

from trainer.checkpoint.fragments import averaged_masters, refresh_weights

PART = 1 << 24  # elements


def start_average(engine: Any) -> None:  # noqa: ANN401 - deepspeed is untyped here
    """Keep one from now on; it begins as the weights are."""
    for _ in averaged_masters(engine):
        pass


def update_average(engine: Any, decay: float, step: int) -> None:  # noqa: ANN401
    """Take in the weights after training step ``step``: a <- d a + (1 - d) w.

    In the first steps d is less, (1 + step) / (10 + step): a short run would not leave its
    beginning (as TensorFlow's ExponentialMovingAverage has it).
    """
    decay = min(decay, (1 + step) / (10 + step))
    for master, average in averaged_masters(engine):
        average.lerp_(master, 1 - decay)


def swap_average(engine: Any) -> None:  # noqa: ANN401
    """Swap the weights and their average. Only export may follow, or to swap them back: the
    optimizer knows the others.
    """
    for master, average in averaged_masters(engine):
        for ours, other in zip(_parts(master), _parts(average), strict=True):
            kept = ours.clone()
            ours.copy_(other)
            other.copy_(kept)
    refresh_weights(engine)


def _parts(flat: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Views of a few elements each, so that a swap needs little memory."""
    parts: tuple[torch.Tensor, ...] = flat.view(-1).split(PART)
    return parts
