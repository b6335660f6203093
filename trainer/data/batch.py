"""Rows become padded tensors. A micro-batch may be short or empty: then it counts for nothing."""

from dataclasses import dataclass

import torch

from trainer.data.chat import Tokens

IGNORED = -100


@dataclass(frozen=True)
class Batch:
    """One micro-batch, all [rows, positions]; a label is the token that follows its position."""

    ids: torch.Tensor
    attention: torch.Tensor
    labels: torch.Tensor

    @property
    def targets(self) -> int:
        """Trained tokens in it."""
        return int((self.labels != IGNORED).sum())

    def to(self, device: torch.device) -> "Batch":
        """The same on another device."""
        return Batch(self.ids.to(device), self.attention.to(device), self.labels.to(device))


def collate(rows: list[Tokens], pad_id: int) -> Batch:
    """Pad on the right to the longest row.

    An empty list gives a lone padding row, since every rank must run every micro-step.
    """
    width = max([len(row.ids) for row in rows] + [2])
    height = max(len(rows), 1)
    ids_BT = torch.full((height, width), pad_id, dtype=torch.long)
    attention_BT = torch.zeros((height, width), dtype=torch.long)
    attention_BT[:, 0] = 1  # a row that attends to nothing would be NaN
    labels_BT = torch.full((height, width), IGNORED, dtype=torch.long)
    for b, row in enumerate(rows):
        length = len(row.ids)
        ids_BT[b, :length] = torch.tensor(row.ids)
        attention_BT[b, :length] = 1
        targets = [i if t else IGNORED for i, t in zip(row.ids, row.trained, strict=True)]
        labels_BT[b, : length - 1] = torch.tensor(targets[1:])
    return Batch(ids_BT, attention_BT, labels_BT)
