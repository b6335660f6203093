"""Cases of the learning benchmark: method, rows, metric and bar."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

LETTER = "e"
OPTIMUM = 1.0  # reward of an answer with only this letter


@dataclass(frozen=True, kw_only=True)
class LearningCase:
    """One method on one kind of rows; ``spec`` overrides members of the run spec."""

    method: str
    rows: str  # a key of `bench.learning.ranks.prepare.WRITE`
    figure: str  # a member of StepMetrics, the metric to judge by
    bar: float  # required value of `reached`
    what: str
    spec: Mapping[str, Any] = field(default_factory=dict)
    lower_is_better: bool = False  # whether a lower metric is better

    def reached(self, values: Sequence[float]) -> float:
        """Return the mean of the last fifth of the values.

        Where lower is better, it is divided by the mean of the first fifth.
        """
        fifth = max(len(values) // 5, 1)
        last = sum(values[-fifth:]) / fifth
        return last / (sum(values[:fifth]) / fifth) if self.lower_is_better else last


def _graded(algorithm: str, **members: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "total_steps": 160,
        "learning_rate": 2e-3,
        "reinforcement": {"algorithm": algorithm, "answers": 8, "max_answer_tokens": 8} | members,
    }


CASES: dict[str, LearningCase] = {
    "supervised": LearningCase(
        method="supervised",
        rows="chats",
        figure="loss",
        bar=0.5,
        lower_is_better=True,
        what="training loss, last fifth over first fifth",
        spec={"total_steps": 120},
    ),
    "reward": LearningCase(
        method="reward",
        rows="preferences",
        figure="accuracy",
        bar=0.6,
        what="pairs put in the right order when first seen; chance is 0.5",
        spec={"total_steps": 74, "learning_rate": 1e-3},
    ),
    "dpo": LearningCase(
        method="dpo",
        rows="preferences",
        figure="margin",
        bar=0.5,
        what="reward of the preferred answer over the other's",
        spec={"total_steps": 120, "learning_rate": 5e-4, "dpo": {"beta": 0.1}},
    ),
    "orpo": LearningCase(
        method="orpo",
        rows="preferences",
        figure="accuracy",
        bar=0.8,
        what="pairs whose preferred answer is the more probable a token; chance is 0.5",
        spec={"total_steps": 120, "learning_rate": 2e-3, "method_options": '{"beta": 0.5}'},
    ),
    "grpo": LearningCase(
        method="reinforcement",
        rows="prompts",
        figure="reward",
        bar=0.95 * OPTIMUM,
        what=f"share of the letter {LETTER}; the optimum is 1",
        spec=_graded("grpo"),
    ),
    "rloo": LearningCase(
        method="reinforcement",
        rows="prompts",
        figure="reward",
        bar=0.95 * OPTIMUM,
        what=f"share of the letter {LETTER}; the optimum is 1",
        spec=_graded("rloo"),
    ),
    "ppo": LearningCase(
        method="reinforcement",
        rows="prompts",
        figure="reward",
        bar=0.95 * OPTIMUM,
        what=f"share of the letter {LETTER}, with a critic and a tenth of old answers; optimum 1",
        spec=_graded("ppo", replay_share=0.1, steps_per_rollout=2)
        | {"total_steps": 200, "learning_rate": 1e-3},
    ),
}
