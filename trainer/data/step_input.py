"""What a training step is made of, before it is done."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from trainer.data.batch import Batch
from trainer.data.prefetch import Feed
from trainer.rollout.experience import Experience
from trainer.rollout.reward_metrics import Figures
from trainer.state import State


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """One rank's micro-batches of a step, and what is left once it is done."""

    batches: Sequence[Batch]
    experience: Experience = field(default_factory=Experience)
    beta: float = 0.0  # weight of the KL penalty
    figures: Figures | None = None  # None where nothing is graded


class Feeding(Protocol):
    """Where a step's micro-batches come from."""

    def step(self, state: State) -> Prepared | None:
        """Those of the step after this state; None when a stop was asked for meanwhile.

        Collective: every rank calls it at the same place, and gets None if any other does.
        """
        ...

    def units(self, state: State, units: Callable[[Batch], int]) -> Iterator[int]:
        """What this rank's rows of all steps after this state have, part after part, by ``units``.

        As many parts on every rank; nothing is asked of the model.
        """
        ...


class FromFile:
    """Rows of a data file."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    def step(self, state: State) -> Prepared:
        """They need nothing of the model."""
        return Prepared(batches=self._feed.step(state.consumed_samples))

    def units(self, state: State, units: Callable[[Batch], int]) -> Iterator[int]:
        """Of each micro-batch; every row comes once."""
        return map(units, self._feed.rest(state.consumed_samples))
