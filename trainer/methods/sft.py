"""Supervised fine-tuning: cross entropy over the trained tokens."""

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from trainer.data.batch import IGNORED, Batch


@dataclass(frozen=True)
class Scores:
    """Sums over one micro-batch, not means: sums add up across micro-steps and ranks."""

    loss: torch.Tensor  # cross entropy, with gradient
    correct: torch.Tensor  # tokens whose most likely prediction is right


def scores(model: Any, batch: Batch) -> Scores:  # noqa: ANN401 - transformers is untyped here
    """Run the model and score the positions that are trained; the others cost no softmax."""
    logits_BTV = model(input_ids=batch.ids, attention_mask=batch.attention, use_cache=False).logits
    trained = batch.labels != IGNORED
    logits_NV, labels_N = logits_BTV[trained].float(), batch.labels[trained]
    loss = cross_entropy(logits_NV, labels_N, reduction="sum")
    return Scores(loss, (logits_NV.argmax(-1) == labels_N).sum())


def objective(loss_sum: torch.Tensor, tokens: int, world_size: int) -> torch.Tensor:
    """What a micro-step backpropagates, so that a whole step is the mean over all its tokens.

    ``tokens`` counts the trained tokens of the global batch. DeepSpeed averages gradients
    over ranks, hence the factor; a step without any trained token moves nothing.
    """
    return loss_sum * (world_size / max(tokens, 1))
