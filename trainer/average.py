"""An exponential moving average of what is trained, in fp32: steadier than the last step is."""

from typing import Any

from trainer.checkpoint.fragments import averages, refresh


def begin(engine: Any) -> None:  # noqa: ANN401 - deepspeed is untyped here
    """Keep one from now on; it begins as the weights are."""
    for _ in averages(engine):
        pass


def follow(engine: Any, decay: float, step: int) -> None:  # noqa: ANN401
    """Take in the weights after training step ``step``: a <- d a + (1 - d) w.

    In the first steps d is less, (1 + step) / (10 + step): a short run would not leave its
    beginning (as TensorFlow's ExponentialMovingAverage has it).
    """
    decay = min(decay, (1 + step) / (10 + step))
    for master, average in averages(engine):
        average.lerp_(master, 1 - decay)


def adopt(engine: Any) -> None:  # noqa: ANN401
    """Have the weights be their average. Only export may follow: the optimizer knows others."""
    for master, average in averages(engine):
        master.copy_(average)
    refresh(engine)
