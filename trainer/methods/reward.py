"""A reward model: one number for a sequence, higher for the answer that is preferred.

Bradley-Terry: the loss of a pair is -log sigmoid(preferred - other) (Ouyang et al. 2022,
equation 1). The number comes from a new head on the last token.
"""

from typing import Any

from torch.nn.functional import logsigmoid

from trainer.data.batch import Batch
from trainer.methods.pairs import real_pairs
from trainer.methods.scores import Scores


class Reward:
    """Each pair counts alike, however long its answers are."""

    def begin(self, step: int) -> None:
        """Every step is like every other."""

    def units(self, batch: Batch) -> int:
        """Pairs of which both answers are left after the cut to the context."""
        return int(real_pairs(batch).sum())

    def scores(self, model: Any, batch: Batch) -> Scores:  # noqa: ANN401 - untyped here
        """Score each pair."""
        reward_B1 = model(
            input_ids=batch.ids, attention_mask=batch.attention, use_cache=False
        ).logits.float()
        margin_P = reward_B1[0::2, 0] - reward_B1[1::2, 0]
        real_P = real_pairs(batch)
        return Scores(
            loss=-(logsigmoid(margin_P) * real_P).sum(),
            correct=((margin_P > 0) & real_P).sum(),
            margin=(margin_P.detach() * real_P).sum(),
        )
