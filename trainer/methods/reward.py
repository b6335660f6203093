"""A reward model: one number for a sequence, higher for the answer that is preferred.

Bradley-Terry: the loss of a pair is -log sigmoid(preferred - other) (Ouyang et al. 2022,
equation 1). The number comes from a new head on the last token.
"""

from typing import Any

from torch.nn.functional import logsigmoid

from trainer.data.batch import Batch
from trainer.methods.descriptor import LONGER_ANSWERS, MethodDescriptor, MethodInputs
from trainer.methods.interface import BatchScores, Method
from trainer.methods.pairs import PairMethod, real_pairs
from trainer.methods.ranking import RankingLoss
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


def _make(making: MethodInputs) -> Method:
    spec = making.spec
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
