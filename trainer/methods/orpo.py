"""Odds ratio preference optimization: learn the preferred answer, push the other one away.

With p an answer's probability per token, the geometric mean over its tokens, and b the weight:

    -log p(preferred) - b log sigmoid(log odds(preferred) - log odds(other)),  odds(p) = p / (1 - p)

(Hong et al. 2024, equations 1 and 4 to 7.) There is no reference. Prompts are not trained, and
neither are they part of TRL's odds; its first term also covers the prompt, as in the authors' code.
The margin is b times the difference of both log p, as in TRL.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import logsigmoid

from trainer.contract.wire import Message
from trainer.data.batch import Batch
from trainer.methods.descriptor import LONGER_ANSWERS, MethodDescriptor, method_options_of
from trainer.methods.forward import log_probabilities, sum_by_sequence, trained_token_counts
from trainer.methods.interface import BatchScores, PairMethod, real_pairs

_CERTAIN = -torch.finfo(torch.float32).eps  # log p; nearer to 0 the odds have no finite gradient


@dataclass(frozen=True, kw_only=True)
class OrpoOptions(Message):
    """The method's options."""

    beta: float  # weight of the odds ratio; lambda in the paper


class OrpoLoss(PairMethod):
    """Preference loss without a reference model."""

    def __init__(self, settings: OrpoOptions) -> None:
        self._beta = settings.beta

    def scores(self, model: Any, batch: Batch) -> BatchScores:  # noqa: ANN401 - untyped here
        """Score each pair."""
        tokens_B = trained_token_counts(batch).clamp(min=1)
        logp_B = sum_by_sequence(batch, log_probabilities(model, batch)) / tokens_B
        odds_B = log_odds(logp_B)
        loss_P = -logp_B[0::2] - self._beta * logsigmoid(odds_B[0::2] - odds_B[1::2])
        lead_P, real_P = (logp_B[0::2] - logp_B[1::2]).detach(), real_pairs(batch)
        return BatchScores(
            loss=(loss_P * real_P).sum(),
            correct=((lead_P > 0) & real_P).sum(),
            margin=(self._beta * lead_P * real_P).sum(),
        )


def log_odds(logp: torch.Tensor) -> torch.Tensor:
    """Return log p - log(1 - p); finite and without gradient for a certain answer."""
    logp = logp.clamp(max=_CERTAIN)
    return logp - torch.log(-torch.expm1(logp))


KIND = MethodDescriptor(
    make=lambda making: OrpoLoss(method_options_of(making.spec, OrpoOptions)),
    name=lambda _: "odds ratio preference optimization, without a reference",
    target="a pair of two different answers: they are cut off, or equal",
    remedy=LONGER_ANSWERS,
    has_margin=True,
    options=OrpoOptions,
)
