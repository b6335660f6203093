"""A micro-batch of the model's own answers, with values for each token.

Flat members hold one number for each trained token, in the order of the labels that are not
ignored: row after row.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from rendering.tokens import Tokens
from trainer.data.batch import Batch, padded
from trainer.rollout.experience import GradedAnswer


@dataclass(frozen=True, kw_only=True)
class AnswerBatch(Batch):
    """The rows of `Batch`; flat members that a method does not need are empty."""

    beta: float  # weight of the KL penalty in this step
    behaviour: torch.Tensor  # log-probability by the policy that gave the answer
    reference: torch.Tensor  # and by the base model
    values: torch.Tensor  # the critic's, from before the step that first trained on the answer
    advantages: torch.Tensor
    returns: torch.Tensor  # what the critic should have expected


def answer_batch(
    rows: Sequence[GradedAnswer],
    pad_id: int,
    *,
    least: int,
    beta: float = 0.0,
    advantages: NDArray[np.float64] | None = None,
    returns: NDArray[np.float64] | None = None,
) -> AnswerBatch:
    """Collate the answers; without any, ``least`` rows of padding.

    ``advantages`` and ``returns`` are flat; by default each token has its answer's advantage.
    """
    plain = padded([_tokens(row) for row in rows], pad_id, least)
    of_answer = [np.full(row.tokens, row.advantage) for row in rows]
    return AnswerBatch(
        ids=plain.ids,
        labels=plain.labels,
        sequence=plain.sequence,
        sequences=plain.sequences,
        attention=plain.attention,
        beta=beta,
        behaviour=_flat([row.behaviour for row in rows]),
        reference=_flat([row.reference for row in rows]),
        values=_flat([row.values for row in rows]),
        advantages=_flat(of_answer if advantages is None else [advantages]),
        returns=_flat([] if returns is None else [returns]),
    )


def _tokens(row: GradedAnswer) -> Tokens:
    ids: list[int] = row.ids.tolist()
    return Tokens(ids, [False] * row.prompt + [True] * row.tokens)


def _flat(parts: Sequence[NDArray[np.floating]]) -> torch.Tensor:
    """Concatenate the parts, fp32."""
    return torch.from_numpy(np.concatenate([np.zeros(0), *parts]).astype(np.float32))
