"""Run a language model on a batch, with logits of the trained positions only."""

from typing import Any

import torch
from torch.nn.functional import cross_entropy

from trainer.data.batch import IGNORED, Batch


def trained_logits(model: Any, batch: Batch) -> torch.Tensor:  # noqa: ANN401 - untyped here
    """Return the logits [trained tokens, vocabulary] in fp32.

    Of a packed batch the others are not computed; of a padded one they are dropped.
    """
    trained = batch.labels != IGNORED
    if batch.positions is None:
        output = model(input_ids=batch.ids, attention_mask=batch.attention, use_cache=False)
        return output.logits[trained].float()
    output = model(
        input_ids=batch.ids,
        position_ids=batch.positions,
        lengths=batch.lengths,
        logits_to_keep=trained[0].nonzero()[:, 0],
        use_cache=False,
    )
    return output.logits[0].float()


def log_probabilities(model: Any, batch: Batch, temperature: float = 1.0) -> torch.Tensor:  # noqa: ANN401
    """Return the log-probability of each trained token [trained tokens], fp32."""
    logits_NV = trained_logits(model, batch)
    return -cross_entropy(
        logits_NV if temperature == 1.0 else logits_NV / temperature,
        batch.labels[batch.labels != IGNORED],
        reduction="none",
    )


def sum_by_sequence(batch: Batch, of_N: torch.Tensor) -> torch.Tensor:
    """Sum values of trained tokens over each sequence [sequences]."""
    sequence_N = batch.sequence[batch.labels != IGNORED]
    return of_N.new_zeros(batch.sequences).index_add(0, sequence_N, of_N)


def trained_token_counts(batch: Batch) -> torch.Tensor:
    """Return the number of trained tokens of each sequence [sequences]."""
    of_N = batch.sequence[batch.labels != IGNORED]
    return torch.bincount(of_N, minlength=batch.sequences)
