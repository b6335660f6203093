"""Sequence classification: cross entropy between the labels, read at one position of a row.

The model's class chooses the position: decoders the last token, BERT the first.
"""

from typing import Any

import torch
from torch.nn.functional import cross_entropy

from trainer.data.batch import IGNORED, Batch
from trainer.methods.descriptor import MethodDescriptor
from trainer.methods.interface import BatchScores, Method


class ClassificationLoss(Method):
    """Cross entropy; each row counts alike, whatever its length."""

    def units(self, batch: Batch) -> int:
        """Return the number of rows that are not padding."""
        return int((_classes(batch) != IGNORED).sum())

    def scores(self, model: Any, batch: Batch) -> BatchScores:  # noqa: ANN401 - untyped here
        """Score each row; padding rows do not count."""
        logits_BC = model(input_ids=batch.ids, attention_mask=batch.attention).logits.float()
        classes_B = _classes(batch)
        loss = cross_entropy(logits_BC, classes_B, ignore_index=IGNORED, reduction="sum")
        return BatchScores(loss=loss, correct=(logits_BC.argmax(-1) == classes_B).sum())


def _classes(batch: Batch) -> torch.Tensor:
    assert batch.classes is not None, "its collation gives them"
    return batch.classes


KIND = MethodDescriptor(
    make=lambda _: ClassificationLoss(),
    name=lambda _: "classification of whole rows, with a new head",
    target="a label",
    remedy="Label the rows.",
)
