"""Supervised fine-tuning: cross entropy over the trained tokens."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

from trainer.data.batch import IGNORED, Batch
from trainer.methods.descriptor import MethodDescriptor, MethodInputs
from trainer.methods.forward import trained_logits
from trainer.methods.interface import BatchScores, Method

PLAIN = ("llama", "mistral", "qwen2", "qwen3")  # nothing happens to logits behind their head


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


class ChunkedSupervisedLoss(SupervisedLoss):
    """`SupervisedLoss` with logits of at most ``chunk`` positions at a time.

    The output head itself computes the loss, so that everything around it, such as ZeRO-3's
    gathering of its weight, happens once for a micro-batch. A chunk's logits are recomputed for its
    gradients (as in Liger's and torchtune's chunked losses).
    """

    def __init__(self, module: Any, chunk: int) -> None:  # noqa: ANN401 - untyped here
        if module.config.model_type not in PLAIN:
            raise ValueError(
                f"loss_chunk is known to be right for {', '.join(PLAIN)} only, "
                f"not for {module.config.model_type}; leave it out"
            )
        self._head = _Head(module.get_output_embeddings(), chunk)

    def scores(self, model: Any, batch: Batch) -> BatchScores:  # noqa: ANN401
        """Score the positions that are trained; the head gives their sums instead of logits."""
        if batch.positions is None:
            inputs = {"attention_mask": batch.attention}
        else:
            inputs = {"position_ids": batch.positions, "lengths": batch.lengths}
        with self._head.scoring(batch.labels):
            output = model(input_ids=batch.ids, use_cache=False, **inputs)
        loss, correct = output.logits.unbind()
        return BatchScores(loss=loss, correct=correct.detach().round().long())


class _Head:
    """The model's output head, which temporarily returns sums of losses instead of logits."""

    def __init__(self, head: Any, chunk: int) -> None:  # noqa: ANN401
        self._head, self._chunk, self._logits = head, chunk, head.forward

    @contextmanager
    def scoring(self, labels_BT: torch.Tensor) -> Iterator[None]:
        """Make the head return [loss, correct] of the labelled positions."""
        before = vars(self._head).get("forward")
        self._head.forward = partial(self._sums, labels_BT)
        try:
            yield
        finally:
            del self._head.forward
            if before is not None:
                self._head.forward = before

    def _sums(self, labels_BT: torch.Tensor, hidden_BTD: torch.Tensor) -> torch.Tensor:
        trained = labels_BT != IGNORED
        chunks = zip(
            hidden_BTD[trained].split(self._chunk),
            labels_BT[trained].split(self._chunk),
            strict=True,
        )
        chunk_sums = [
            checkpoint(self._sum, *chunk, use_reentrant=False, preserve_rng_state=False)
            for chunk in chunks
        ]
        return torch.stack(chunk_sums).sum(0)

    def _sum(self, hidden_ND: torch.Tensor, labels_N: torch.Tensor) -> torch.Tensor:
        logits_NV = self._logits(hidden_ND).float()
        loss = cross_entropy(logits_NV, labels_N, reduction="sum")
        correct = (logits_NV.argmax(-1) == labels_N).sum()
        return torch.stack([loss, correct.float()])


def _make(inputs: MethodInputs) -> Method:
    chunk = inputs.spec.loss_chunk
    return ChunkedSupervisedLoss(inputs.engine.module, chunk) if chunk else SupervisedLoss()


KIND = MethodDescriptor(
    make=_make,
    name=lambda _: "supervised fine-tuning on the assistant's messages",
    target="a trained token: the answers are cut off, or all of them have weight 0",
    remedy="Raise training.max_seq_len, shorten the prompts, or set weight to 1.",
)
