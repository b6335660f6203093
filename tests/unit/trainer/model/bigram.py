"""As much of a language model as the losses need, and pairs of answers for it."""

from dataclasses import dataclass
from typing import Any

import torch

from rendering.tokens import Tokens
from trainer.data.batch import Batch, padded


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


def answer(*ids: int, prompt: tuple[int, ...] = (1,)) -> Tokens:
    """Return an answer to a prompt, which is not trained."""
    return Tokens([*prompt, *ids], [False] * len(prompt) + [True] * len(ids))


PAIRS = [(answer(2, 3, 4), answer(2, 4)), (answer(4), answer(3, 3, 3, 2)), (answer(2), answer(3))]
CUT_OFF = Tokens([1, 1], [False, False])  # before the assistant speaks


def batch_of(*pairs: tuple[Tokens, Tokens], pad_id: int = 0) -> Batch:
    """Return a batch with preferred and other answers side by side."""
    return padded([tokens for pair in pairs for tokens in pair], pad_id=pad_id, least=2)
