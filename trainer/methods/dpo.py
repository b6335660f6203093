"""Direct preference optimization: the preferred answer gains on the other, against a reference.

With r the log-probability of an answer under the model less that under the reference, and d the
preferred answer's r less the other's:

    sigmoid   -(1 - e) log sigmoid(b d) - e log sigmoid(-b d)
    ipo       (d - 1 / 2b)^2, each r first divided by the tokens of its answer

(Rafailov et al. 2023, equation 7; e, label smoothing, from Mitchell 2023; IPO from Azar et al.
2023, equation 17, with means in place of sums as TRL has it.) The margin is b d, never divided.
"""

from typing import Any

import torch
from torch.nn.functional import logsigmoid

from trainer.contract import Dpo as Settings
from trainer.data.batch import Batch
from trainer.methods.descriptor import LONGER_ANSWERS, MethodDescriptor, MethodInputs
from trainer.methods.forward import log_probabilities, sum_by_sequence, trained_token_counts
from trainer.methods.interface import BatchScores, PairMethod, real_pairs
from trainer.methods.reference_model import ReferenceModel, make_reference


class DpoLoss(PairMethod):
    """Preference loss with a reference model."""

    def __init__(self, settings: Settings, reference: ReferenceModel) -> None:
        if settings.loss not in ("sigmoid", "ipo"):
            raise ValueError(f"dpo.loss {settings.loss!r} is not known; use sigmoid or ipo")
        self._settings, self._reference = settings, reference

    def scores(self, model: Any, batch: Batch) -> BatchScores:  # noqa: ANN401 - untyped here
        """Score each pair."""
        # Before the model's pass, which `backward` follows.
        reference_B = sum_by_sequence(batch, self._reference(batch))
        gain_B = sum_by_sequence(batch, log_probabilities(model, batch)) - reference_B
        reward_P = self._settings.beta * (gain_B[0::2] - gain_B[1::2])
        real_P = real_pairs(batch)
        return BatchScores(
            loss=(self._loss(gain_B, batch) * real_P).sum(),
            correct=((reward_P > 0) & real_P).sum(),
            margin=(reward_P.detach() * real_P).sum(),
        )

    def _loss(self, gain_B: torch.Tensor, batch: Batch) -> torch.Tensor:
        beta, smoothing = self._settings.beta, self._settings.label_smoothing
        if self._settings.loss == "ipo":
            gain_B = gain_B / trained_token_counts(batch).clamp(min=1)
            return (gain_B[0::2] - gain_B[1::2] - 1 / (2 * beta)) ** 2
        reward_P = beta * (gain_B[0::2] - gain_B[1::2])
        return -(1 - smoothing) * logsigmoid(reward_P) - smoothing * logsigmoid(-reward_P)


def _make(inputs: MethodInputs) -> DpoLoss:
    assert inputs.spec.dpo is not None
    return DpoLoss(inputs.spec.dpo, make_reference(*inputs))


KIND = MethodDescriptor(
    make=_make,
    name=lambda _: "direct preference optimization; the reference is the base model",
    target="a pair of two different answers: they are cut off, or equal",
    remedy=LONGER_ANSWERS,
    has_margin=True,
    one_pass=False,
)
