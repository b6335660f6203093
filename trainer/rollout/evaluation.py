"""Evaluate the model's answers to the prompts of the validation file."""

import math
from collections.abc import Sequence

from trainer.data.order import micro_batch_samples
from trainer.methods.interface import Method
from trainer.process.all_reduce import sum_over_ranks
from trainer.rollout.collector import RolloutCollector
from trainer.rollout.optimizer_offload import offload_optimizer
from trainer.state import RankIdentity


class RewardEvaluation:
    """Negated mean grade of the most likely answer to each prompt."""

    def __init__(self, collector: RolloutCollector, identity: RankIdentity) -> None:
        self._collector, self._me = collector, identity

    def __call__(self, method: Method) -> float | None:  # noqa: ARG002 - no loss is asked for
        """Return the negated mean over the prompts with room for an answer; NaN for none."""
        total, count = 0.0, 0.0
        if self._collector.stop():
            return None
        with offload_optimizer(self._collector.engine, self._collector.spec.rollout_offload):
            for rows in self._groups():
                grades = self._grades(rows)
                if self._collector.stop():  # answers may have been cut short
                    return None
                total, count = total + sum(grades), count + len(grades)
        total, count = sum_over_ranks(total, count, device=self._collector.engine.device)
        return -total / count if count else math.nan

    def _groups(self) -> list[list[int]]:
        """Return this rank's rows; as many groups on every rank."""
        rows, at_once = len(self._collector.prompts), self._collector.settings.at_once
        return micro_batch_samples(0, rows, at_once, self._me.world_size, self._me.rank)

    def _grades(self, rows: Sequence[int]) -> list[float]:
        """Grade the prompts with room for an answer; failed grades count 0."""
        collector = self._collector
        longest = collector.spec.max_seq_len
        prompts = [collector.prompts[row] for row in rows]
        fit = [prompt for prompt in prompts if len(prompt.ids) < longest]
        found = collector.sampler.answers([prompt.ids for prompt in fit], None)
        cut = [
            (p, collector.cut_to_context(p, answer)) for p, answer in zip(fit, found, strict=True)
        ]
        return [grade.score for grade in collector.grade(cut)]
