"""As much of a language model as the losses need."""

from dataclasses import dataclass
from typing import Any

import torch


@dataclass
class Answer:
    """What a model returns."""

    logits: torch.Tensor
    token_values: torch.Tensor | None = None  # of a critic, where there is one


class Bigram(torch.nn.Module):  # type: ignore[misc] # torch is not followed
    """Predicts the next of five tokens from the last one alone."""

    def __init__(self, seed: int = 1) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.table = torch.nn.Parameter(torch.randn(5, 5))

    def forward(self, input_ids: torch.Tensor, **_: Any) -> Answer:  # noqa: ANN401
        return Answer(self.table[input_ids])
