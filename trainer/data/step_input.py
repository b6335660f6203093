"""What a training step is made of, before it is done."""

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
    """One rank's micro-batches of a step, and what is left once it is done."""

    batches: Sequence[Batch]
    experience: ReplayState = field(default_factory=ReplayState)
    beta: float = 0.0  # weight of the KL penalty
    figures: RewardSums | None = None  # None where nothing is graded


class StepSource(Protocol):
    """Where a step's micro-batches come from."""

    def step(self, state: TrainingState) -> StepInput | None:
        """Those of the step after this state; None when a stop was asked for meanwhile.

        Collective: every rank calls it at the same place, and gets None if any other does.
        """
        ...

    def units(self, state: TrainingState, units: Callable[[Batch], int]) -> Iterator[int]:
        """What this rank's rows of all steps after this state have, part after part, by ``units``.

        As many parts on every rank; nothing is asked of the model.
        """
        ...


class FileStepSource:
    """Rows of a data file."""

    def __init__(self, feed: BatchPrefetcher) -> None:
        self._feed = feed

    def step(self, state: TrainingState) -> StepInput:
        """They need nothing of the model."""
        return StepInput(batches=self._feed.step(state.consumed_samples))

    def units(self, state: TrainingState, units: Callable[[Batch], int]) -> Iterator[int]:
        """Of each micro-batch; every row comes once."""
        return map(units, self._feed.rest(state.consumed_samples))
