"""Supervised fine-tuning: cross entropy over the trained tokens."""

from typing import Any

from torch.nn.functional import cross_entropy

from trainer.data.batch import IGNORED, Batch
from trainer.methods.descriptor import MethodDescriptor, MethodInputs
from trainer.methods.forward import trained_logits
from trainer.methods.interface import BatchScores, Method


class SupervisedLoss(Method):
    """Cross entropy; each trained token counts alike, in any row and rank."""

    def units(self, batch: Batch) -> int:
        """Return the number of trained tokens."""
        return batch.targets

    def scores(self, model: Any, batch: Batch) -> BatchScores:  # noqa: ANN401 - untyped here
        """Score the trained positions; others cost no softmax."""
        logits_NV = trained_logits(model, batch)
        labels_N = batch.labels[batch.labels != IGNORED]
        loss = cross_entropy(logits_NV, labels_N, reduction="sum")
        return BatchScores(loss=loss, correct=(logits_NV.argmax(-1) == labels_N).sum())


def _make(making: MethodInputs) -> Method:
    chunk = making.spec.loss_chunk
    if not chunk:
        return SupervisedLoss()
    from trainer.methods.chunked_loss import ChunkedSupervisedLoss  # noqa: PLC0415 - it imports this module

    return ChunkedSupervisedLoss(making.engine.module, chunk)


KIND = MethodDescriptor(
    make=_make,
    name=lambda _: "supervised fine-tuning on the assistant's messages",
    target="a trained token: the answers are cut off, or all of them have weight 0",
    remedy="Raise training.max_seq_len, shorten the prompts, or set weight to 1.",
)
