"""Scores to compare: negative log-likelihoods of tokens or classes, or reward scores.

Trainer and verifying process score one sequence at a time, without padding: the same weights on the
same device then give the same numbers.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch.nn.functional import cross_entropy, logsigmoid

from trainer.contract import RunSpec
from trainer.verify.rows import VerificationRow

Values = list[list[float]]  # by sequence, in nats or in units of the score


def measure_name(spec: RunSpec) -> str:
    """Return the name of the values' mean."""
    if spec.method == "classification":
        return "negative log-likelihood of the class"
    if spec.method == "reward":
        return "loss of the preferred answer's score against the other's"
    return "negative log-likelihood per token"


def score_rows(
    model: Any,  # noqa: ANN401 - transformers is untyped here
    rows: Sequence[VerificationRow],
    spec: RunSpec,
    device: Any,  # noqa: ANN401
    *,
    packed: bool = False,
) -> Values:
    """Score each sequence. ``packed``: the model's attention takes the lengths of sequences."""
    with torch.no_grad():
        return [_score(model, row, spec, device, packed=packed) for row in rows]


def mean_loss(values: Values, rows: Sequence[VerificationRow], spec: RunSpec) -> float | None:
    """Return the mean of the values; of a reward model the mean pair loss. None: no number."""
    losses = [value for row_values in values for value in row_values]
    if spec.method == "reward":
        losses = _pair_losses(losses, rows, spec)
    return _finite(sum(losses) / len(losses)) if losses else None


def mean_difference(values: Values, reference: Values) -> float | None:
    """Return the mean absolute difference of all values; None: not a number."""
    pairs = zip(values, reference, strict=True)
    differences = [
        abs(a - b) for row, reference_row in pairs for a, b in zip(row, reference_row, strict=True)
    ]
    return _finite(sum(differences) / len(differences)) if differences else None


def _pair_losses(
    scores: Sequence[float], rows: Sequence[VerificationRow], spec: RunSpec
) -> list[float]:
    """Return the loss of each pair of neighbouring sequences that are of one row."""
    row_numbers = [row.number // spec.sequences_per_row for row in rows]
    pairs = zip(pairwise(row_numbers), pairwise(scores), strict=True)
    leads = [a - b for (row, next_row), (a, b) in pairs if row == next_row]
    return [float(-logsigmoid(torch.tensor(lead))) for lead in leads]


def _score(
    model: Any,  # noqa: ANN401
    row: VerificationRow,
    spec: RunSpec,
    device: Any,  # noqa: ANN401
    *,
    packed: bool,
) -> list[float]:
    ids = torch.tensor([row.ids[: row.length]], device=device)
    if packed:
        positions = torch.arange(row.length, device=device).unsqueeze(0)
        inputs: dict[str, Any] = {"position_ids": positions, "lengths": (row.length,)}
    else:
        inputs = {"attention_mask": torch.ones_like(ids)}
    if spec.method != "classification":  # whose models do not all know it
        inputs["use_cache"] = False
    logits = model(input_ids=ids, **inputs).logits[0]
    if spec.method == "reward":
        return [float(logits[0])]
    if row.label is not None:
        return [float(cross_entropy(logits.float(), torch.tensor(row.label, device=device)))]
    at = torch.tensor(row.positions, device=device)
    losses: list[float] = cross_entropy(
        logits[at - 1].float(), ids[0, at], reduction="none"
    ).tolist()
    return losses


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
