"""How good the model is on the validation file."""

import math
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch

from trainer.data.batch import Batch
from trainer.methods.interface import Method
from trainer.model.eval_mode import evaluation_mode
from trainer.process.all_reduce import sum_over_ranks


class Evaluation(Protocol):
    """Collective; draws nothing at random."""

    def __call__(self, method: Method) -> float | None:
        """The mean over all targets, lower is better; NaN where there are none.

        None when a stop was asked for meanwhile.
        """
        ...


class LossEvaluation:
    """The method's own loss."""

    def __init__(
        self,
        engine: Any,  # noqa: ANN401
        batches: Callable[[], Iterator[Batch]],
        leaving: Callable[[], bool],
    ) -> None:
        self._engine, self._batches, self._leaving = engine, batches, leaving

    def __call__(self, method: Method) -> float | None:
        """The mean over all units; a loss that is no number is infinite."""
        loss, units = torch.zeros((), device=self._engine.device), 0
        with torch.no_grad(), evaluation_mode(self._engine):
            for batch in self._batches():
                if self._leaving():
                    return None
                loss += method.scores(self._engine, batch.to(self._engine.device)).loss
                units += method.units(batch)
        loss_sum, unit_sum = sum_over_ranks(loss, units, device=self._engine.device)
        if not unit_sum:
            return math.nan
        mean = loss_sum / unit_sum
        return math.inf if math.isnan(mean) else mean
