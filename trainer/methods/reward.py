"""A reward model: one number for a sequence, higher for the answer that is preferred.

Bradley-Terry: the loss of a pair is -log sigmoid(preferred - other) (Ouyang et al. 2022,
equation 1). The number comes from a new head on the last token.
"""

from typing import Any

import torch
from torch.nn.functional import logsigmoid

from trainer.contract import Ranked as Settings
from trainer.data.batch import Batch
from trainer.methods.descriptor import LONGER_ANSWERS, MethodDescriptor, MethodInputs
from trainer.methods.forward import trained_token_counts
from trainer.methods.interface import BatchScores, Method, PairMethod, real_pairs
from trainer.process.non_retryable import NonRetryableError


class RewardLoss(PairMethod):
    """The loss of a pair's scores."""

    def scores(self, model: Any, batch: Batch) -> BatchScores:  # noqa: ANN401 - untyped here
        """Score each pair."""
        reward_B1 = model(
            input_ids=batch.ids, attention_mask=batch.attention, use_cache=False
        ).logits.float()
        margin_P = reward_B1[0::2, 0] - reward_B1[1::2, 0]
        real_P = real_pairs(batch)
        return BatchScores(
            loss=-(logsigmoid(margin_P) * real_P).sum(),
            correct=((margin_P > 0) & real_P).sum(),
            margin=(margin_P.detach() * real_P).sum(),
        )


def _make(inputs: MethodInputs) -> Method:
    spec = inputs.spec
    if spec.ranked is not None:
        return RankingLoss(spec.ranked, spec.answers_per_row, spec.total_steps)
    if spec.answers_per_row != 2:
        raise NonRetryableError("rows of more than two answers are for `ranked`")
    return RewardLoss()


KIND = MethodDescriptor(
    make=_make,
    name=lambda spec: f"a reward model of {'rankings' if spec.ranked else 'pairs (Bradley-Terry)'}",
    target="two different answers: they are cut off, or equal",
    remedy=LONGER_ANSWERS,
    has_margin=True,
)


def margin_at(settings: Settings, step: int, total_steps: int) -> float:
    """Return the required margin in this step (from 1): linear over the steps."""
    done = (min(step, total_steps) - 1) / max(total_steps - 1, 1)
    return settings.margin_start + (settings.margin_end - settings.margin_start) * done


class RankingLoss(Method):
    """Better answers must lead by a margin that grows with the distance in the ranking.

    With s the scores of a row's answers, best first, and g the margin of the step:

        L = sum over i < j of max(0, g - (s_i - s_j)) log(j - i + 1)

    This margin ranking loss, weighted by the distance, is ours and not from the literature:
    neighbours weigh log 2. The mean is over rows that have two answers or more after the cut; a row
    with more answers has more terms.
    """

    def __init__(self, settings: Settings, answers: int, total_steps: int) -> None:
        if answers < 2:
            raise ValueError(f"answers_per_row is {answers}; a ranking has at least 2")
        self._settings, self._answers, self._total_steps = settings, answers, total_steps
        self._margin = settings.margin_start

    def prepare_step(self, step: int) -> None:
        """Set the margin, which follows from the step alone, so that a resume has it too."""
        self._margin = margin_at(self._settings, step, self._total_steps)

    def units(self, batch: Batch) -> int:
        """Return the number of rows with two answers or more."""
        return int((self._real(batch).sum(1) > 1).sum())

    def scores(self, model: Any, batch: Batch) -> BatchScores:  # noqa: ANN401 - untyped here
        """Score each row: its pairs' share in the right order, its neighbours' mean lead."""
        score_B1 = model(
            input_ids=batch.ids, attention_mask=batch.attention, use_cache=False
        ).logits.float()
        score_RK, real_RK = score_B1.view(-1, self._answers), self._real(batch)
        lead_RKK = score_RK.unsqueeze(2) - score_RK.unsqueeze(1)
        weight_KK = _weights(self._answers).to(score_RK)
        pair_RKK = real_RK.unsqueeze(2) & real_RK.unsqueeze(1) & (weight_KK > 0)
        cost_RKK = (self._margin - lead_RKK).clamp(min=0) * weight_KK
        pairs_R = pair_RKK.sum((1, 2)).clamp(min=1)
        return BatchScores(
            loss=(cost_RKK * pair_RKK).sum(),
            correct=(((lead_RKK > 0) & pair_RKK).sum((1, 2)) / pairs_R).sum(),
            margin=_mean_leads(score_RK.detach(), real_RK).sum(),
        )

    def _real(self, batch: Batch) -> torch.Tensor:
        """Return which answers are there [rows, answers]: neither padding nor cut off."""
        return (trained_token_counts(batch) > 0).view(-1, self._answers)


def _weights(answers: int) -> torch.Tensor:
    """Return log(j - i + 1) of each pair i < j, else 0 [answers, answers]."""
    positions = torch.arange(answers)
    return (positions.unsqueeze(0) - positions.unsqueeze(1)).clamp(min=0).log1p()


def _mean_leads(score_RK: torch.Tensor, real_RK: torch.Tensor) -> torch.Tensor:
    """Return the mean difference of adjacent answers [rows].

    That is the best score less the worst, divided by the steps between them.
    """
    last = real_RK.shape[1] - 1
    best_R1 = real_RK.int().argmax(1, keepdim=True)
    worst_R1 = last - real_RK.flip(1).int().argmax(1, keepdim=True)
    lead_R = (score_RK.gather(1, best_R1) - score_RK.gather(1, worst_R1)).squeeze(1)
    count_R = real_RK.sum(1)
    return torch.where(count_R > 1, lead_R / (count_R - 1).clamp(min=1), 0.0)
