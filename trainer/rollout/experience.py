"""Answers that a resume needs: those of coming steps, and those kept for replay."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
LANE = 0x5265706C  # keeps these draws apart from those of the data's order


def empty_values() -> Floats:
    """Return an empty array: nothing is known of any token."""
    return np.zeros(0, dtype=np.float32)


@dataclass(frozen=True, kw_only=True, eq=False)
class GradedAnswer:
    """One answer and what was measured when it was given; immutable."""

    sample: int  # the data cursor of its prompt
    number: int  # among the answers to that prompt
    born: int  # training steps that the model had then
    ids: NDArray[np.int32]  # prompt and answer
    prompt: int  # tokens of the prompt
    grade: float
    advantage: float = 0.0  # over the other answers to the prompt
    # Log-probability of each token of the answer, by who gave it.
    behaviour: Floats = field(default_factory=empty_values)
    reference: Floats = field(default_factory=empty_values)  # by the base model
    # The critic's, when it was first trained on.
    values: Floats = field(default_factory=empty_values)

    @property
    def tokens(self) -> int:
        """Number of tokens of the answer."""
        return len(self.ids) - self.prompt


@dataclass(frozen=True, eq=False)
class ReplayState:
    """One rank's answers: those of coming steps, and old ones to learn from again."""

    waiting: tuple[GradedAnswer, ...] = ()
    replay: tuple[GradedAnswer, ...] = ()  # oldest first

    def __bool__(self) -> bool:
        return bool(self.waiting or self.replay)

    def waiting_answers(self, sample: int) -> list[GradedAnswer]:
        """Return the waiting answers to one prompt, in order."""
        return [row for row in self.waiting if row.sample == sample]

    def after_step(
        self, used: Collection[GradedAnswer], *, consumed: int, oldest: int, capacity: int
    ) -> "ReplayState":
        """Return the state once the samples before ``consumed`` are trained.

        Of ``used`` at most ``capacity`` are kept, and none born before step ``oldest``.
        """
        candidates = (*self.replay, *used) if capacity else ()
        recent = [row for row in candidates if row.born >= oldest]
        return replace(
            self,
            waiting=tuple(row for row in self.waiting if row.sample >= consumed),
            replay=tuple(recent[-capacity:]) if capacity else (),
        )

    def draw_replay(self, count: int, seed: int, step: int, rank: int) -> list[GradedAnswer]:
        """Draw ``count`` old answers, or all: a pure function of the arguments."""
        key = np.array([seed ^ LANE << 32, step], dtype=np.uint64)
        bits = np.random.Philox(key=key, counter=[0, rank, 0, 0])
        order = np.argsort(bits.random_raw(len(self.replay)), kind="stable")
        return [self.replay[index] for index in order[:count]]
