"""The input of one training step, and where it comes from."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from trainer.data.batch import Batch
from trainer.data.prefetch import BatchPrefetcher
from trainer.rollout.experience import ReplayState
from trainer.rollout.reward_metrics import RewardSums
from trainer.state import TrainingState


@dataclass(frozen=True, kw_only=True)
class StepInput:
    """One rank's micro-batches of a step, and the replay state after it."""

    batches: Sequence[Batch]
    experience: ReplayState = field(default_factory=ReplayState)
    beta: float = 0.0  # weight of the KL penalty
    figures: RewardSums | None = None  # None where nothing is graded


class StepSource(Protocol):
    """Source of the micro-batches of each step."""

    def step(self, state: TrainingState) -> StepInput | None:
        """Return the input of the step after this state; None when a stop was requested.

        Collective: every rank calls it at the same place, and gets None if any other does.
        """
        ...

    def units(self, state: TrainingState, units: Callable[[Batch], int]) -> Iterator[int]:
        """Yield the units, by ``units``, of each part of this rank's remaining rows.

        Every rank yields the same number of parts; the model is not used.
        """
        ...


class FileStepSource:
    """Rows of a data file."""

    def __init__(self, prefetcher: BatchPrefetcher) -> None:
        self._prefetcher = prefetcher

    def step(self, state: TrainingState) -> StepInput:
        """Return the micro-batches; rows do not depend on the model."""
        return StepInput(batches=self._prefetcher.step(state.consumed_samples))

    def units(self, state: TrainingState, units: Callable[[Batch], int]) -> Iterator[int]:
        """Yield the units of each micro-batch; every row comes once."""
        return map(units, self._prefetcher.remaining_batches(state.consumed_samples))
