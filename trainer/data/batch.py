"""Collate token sequences into a micro-batch, padded or packed. It may be short or empty.

Padded: each sequence is a row of the length of the longest. Packed: the sequences follow each other
in one row; positions restart at 0, so that the model does not attend across sequences.
"""

from dataclasses import dataclass, fields, replace
from typing import Any, Self

import torch

from rendering.tokens import Tokens

IGNORED = -100


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One micro-batch, all [rows, positions]; a label is the token after its position."""

    ids: torch.Tensor
    labels: torch.Tensor
    sequence: torch.Tensor  # the number of the sequence that a position belongs to
    sequences: int  # how many there are, padding counted
    attention: torch.Tensor | None = None  # padded: 0 where there is padding
    positions: torch.Tensor | None = None  # packed: of each token in its sequence
    lengths: tuple[int, ...] = ()  # packed: of the sequences
    classes: torch.Tensor | None = None  # of each sequence, for classification

    @property
    def targets(self) -> int:
        """Number of trained tokens."""
        return int((self.labels != IGNORED).sum())

    def to(self, device: torch.device) -> Self:
        """Return the batch on another device."""
        members = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{n: _move(member, device) for n, member in members.items()})


def padded(sequences: list[Tokens], pad_id: int, least: int = 1) -> Batch:
    """Pad on the right to the longest sequence.

    An empty list gives ``least`` that are padding, since every rank must run every micro-step.
    """
    width = max([len(s.ids) for s in sequences] + [2])
    height = max(len(sequences), least)
    ids_BT = torch.full((height, width), pad_id, dtype=torch.long)
    attention_BT = torch.zeros((height, width), dtype=torch.long)
    attention_BT[:, 0] = 1  # a row that attends to nothing would be NaN
    labels_BT = torch.full((height, width), IGNORED, dtype=torch.long)
    for b, sequence in enumerate(sequences):
        length = len(sequence.ids)
        ids_BT[b, :length] = torch.tensor(sequence.ids)
        attention_BT[b, :length] = 1
        labels_BT[b, :length] = _labels(sequence)
    return Batch(
        ids=ids_BT,
        labels=labels_BT,
        sequence=torch.arange(height).unsqueeze(1).expand(height, width),
        sequences=height,
        attention=attention_BT,
    )


def padded_with_classes(sequences: list[Tokens], pad_id: int, least: int = 1) -> Batch:
    """Pad; the last id of each sequence is its class, IGNORED for padding."""
    batch = padded([Tokens(s.ids[:-1], s.trained[:-1]) for s in sequences], pad_id, least)
    classes_B = torch.full((batch.sequences,), IGNORED, dtype=torch.long)
    classes_B[: len(sequences)] = torch.tensor([s.ids[-1] for s in sequences], dtype=torch.long)
    return replace(batch, classes=classes_B)


def packed(sequences: list[Tokens], pad_id: int, least: int = 1) -> Batch:
    """Concatenate the sequences; an empty list gives ``least`` sequences of padding."""
    padding = Tokens([pad_id, pad_id], [False, False])
    sequences = sequences or [padding] * least
    lengths = tuple(len(s.ids) for s in sequences)
    return Batch(
        ids=torch.tensor([[i for s in sequences for i in s.ids]]),
        labels=torch.cat([_labels(s) for s in sequences]).unsqueeze(0),
        sequence=torch.arange(len(sequences)).repeat_interleave(torch.tensor(lengths)).unsqueeze(0),
        sequences=len(sequences),
        positions=torch.cat([torch.arange(n) for n in lengths]).unsqueeze(0),
        lengths=lengths,
    )


def _labels(sequence: Tokens) -> torch.Tensor:
    """Return the next token of each trained position, else IGNORED [positions]."""
    targets = zip(sequence.ids[1:], sequence.trained[1:], strict=True)
    return torch.tensor([*(i if trained else IGNORED for i, trained in targets), IGNORED])


def _move(member: Any, device: torch.device) -> Any:  # noqa: ANN401
    return member.to(device) if isinstance(member, torch.Tensor) else member
