"""Evaluate the model on the validation file."""

import math
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch

from trainer.data.batch import Batch
from trainer.methods.interface import Method
from trainer.model.eval_mode import evaluation_mode
from trainer.process.sync_flags import sum_over_ranks


class Evaluation(Protocol):
    """Evaluates the model; collective, and draws no random numbers."""

    def __call__(self, method: Method) -> float | None:
        """Return the mean over all targets, lower is better; NaN without targets.

        None when a stop was requested meanwhile.
        """
        ...


class LossEvaluation:
    """Mean of the method's loss over the validation file."""

    def __init__(
        self,
        engine: Any,  # noqa: ANN401
        batches: Callable[[], Iterator[Batch]],
        is_stopping: Callable[[], bool],
    ) -> None:
        self._engine, self._batches, self._is_stopping = engine, batches, is_stopping

    def __call__(self, method: Method) -> float | None:
        """Return the mean over all units; a NaN loss becomes infinite."""
        loss, units = torch.zeros((), device=self._engine.device), 0
        with torch.no_grad(), evaluation_mode(self._engine):
            for batch in self._batches():
                if self._is_stopping():
                    return None
                loss += method.scores(self._engine, batch.to(self._engine.device)).loss
                units += method.units(batch)
        loss_sum, unit_sum = sum_over_ranks(loss, units, device=self._engine.device)
        if not unit_sum:
            return math.nan
        mean = loss_sum / unit_sum
        return math.inf if math.isnan(mean) else mean
