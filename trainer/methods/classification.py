"""Sequence classification: cross entropy between the labels, read at one place of a row.

Where, the model's class decides: decoders at the last token, BERT at its first.
"""

from typing import Any

import torch
from torch.nn.functional import cross_entropy

from trainer.data.batch import IGNORED, Batch
from trainer.methods.descriptor import MethodDescriptor
from trainer.methods.interface import BatchScores


class ClassificationLoss:
    """Each row counts alike, however long it is."""

    def begin(self, step: int) -> None:
        """Every step is like every other."""

    def units(self, batch: Batch) -> int:
        """Rows that are no padding."""
        return int((_classes(batch) != IGNORED).sum())

    def scores(self, model: Any, batch: Batch) -> BatchScores:  # noqa: ANN401 - untyped here
        """Score each row; of one that is padding nothing counts."""
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
