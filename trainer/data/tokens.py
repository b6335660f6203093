"""Rows as tokens: made when they are needed, or read from a file that an earlier run has left.

The file is safetensors, so it is mapped into memory and can run no code: ``ids`` (int32) and
``trained`` (uint8) of all sequences one after the other, ``starts`` (int64) where each begins,
and where the last one ends. Its name says what it was made of (`token_names.py`). Who brings it
has verified its bytes; only its form is looked at here.
"""

import logging
from datetime import date
from pathlib import Path
from typing import Any, Protocol

from safetensors import SafetensorError, safe_open

from rendering.tokenizer import Tokenizer
from rendering.tokens import Tokens, tokenize, tokenize_labelled
from rendering.tool_calls import Json
from trainer.contract import RunSpec
from trainer.data.rows import JsonlRows, open_rows
from trainer.data.token_cache import FORMAT

log = logging.getLogger("trainer")
NO_TOKENS = Tokens([], [])  # in place of the answers that a row has fewer than others


class TokenSource(Protocol):
    """The tokens of every sequence of one data file; a row may be several, side by side."""

    def __len__(self) -> int:
        """How many sequences there are."""
        ...

    def __getitem__(self, sequence: int) -> Tokens:
        """One sequence, cut to the longest allowed length."""
        ...

    def length(self, sequence: int) -> int:
        """Tokens of one sequence."""
        ...


class TokenizedOnDemand:
    """Tokens made in the moment when they are asked for."""

    def __init__(self, path: Path, tokenizer: Tokenizer, spec: RunSpec) -> None:
        self._per_row, self._tokenizer = spec.sequences_per_row, tokenizer
        self._rows = open_run_rows(path, spec)
        self._max_seq_len, self._today = spec.max_seq_len, date.fromisoformat(spec.date)
        self._classes = {name: number for number, name in enumerate(spec.labels)}

    def __len__(self) -> int:
        return len(self._rows) * self._per_row

    def __getitem__(self, sequence: int) -> Tokens:
        """The sequence, or Hopeless that names the line that is broken."""
        row, place = divmod(sequence, self._per_row)
        found = self._rows[row]
        with self._rows.named(row):
            self._require_room(len(found))
            return self._tokens(found[place]) if place < len(found) else NO_TOKENS

    def length(self, sequence: int) -> int:
        """Tokens of the sequence, which must be made to be counted."""
        return len(self[sequence].ids)

    def _require_room(self, sequences: int) -> None:
        if sequences > self._per_row:
            raise ValueError(f"{sequences} answers; the run was planned for {self._per_row}")

    def _tokens(self, chat: Json) -> Tokens:
        cut = (self._max_seq_len, self._today)
        if self._classes:
            return tokenize_labelled(self._tokenizer, chat, self._classes, *cut)
        return tokenize(self._tokenizer, chat, *cut)


def open_run_rows(path: Path, spec: RunSpec) -> JsonlRows:
    """The rows of a data file as this run reads them."""
    several = spec.sequences_per_row > 1
    return open_rows(path, spec.method, has_answers=several, split=spec.split_answers)


class TokenizedFile:
    """Tokens of a file that was left by `trainer.data.tokenizing`."""

    def __init__(self, path: Path) -> None:
        """Raises ValueError or OSError when the file is not what it should be."""
        try:
            file: Any = safe_open(path, "numpy")
            self._starts = file.get_tensor("starts")
            self._ids, self._trained = file.get_slice("ids"), file.get_slice("trained")
        except SafetensorError as e:
            raise ValueError(f"{path.name} is no file of tokens: {e}") from e
        count = int(self._starts[-1]) if len(self._starts) else -1
        told = (file.metadata() or {}).get("format")
        shapes = [self._ids.get_shape(), self._trained.get_shape()]
        if told != FORMAT or shapes != [[count], [count]]:
            raise ValueError(f"{path.name} is of another format, or not whole")

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, sequence: int) -> Tokens:
        """The sequence as it was tokenized."""
        begin, end = int(self._starts[sequence]), int(self._starts[sequence + 1])
        ids, trained = self._ids[begin:end], self._trained[begin:end]
        return Tokens(ids.tolist(), trained.astype(bool).tolist())

    def length(self, sequence: int) -> int:
        """Tokens of the sequence."""
        return int(self._starts[sequence + 1] - self._starts[sequence])


def open_tokens(path: Path, rows: Path, tokenizer: Tokenizer, spec: RunSpec) -> TokenSource:
    """The tokens that lie at ``path``; where they do not, or are no good, made from ``rows``."""
    if path.exists():
        try:
            found = TokenizedFile(path)
        except (OSError, ValueError) as e:
            log.warning("%s; tokenizing again", e)
        else:
            log.info("%s: tokenized by an earlier generation", rows.name)
            return found
    return TokenizedOnDemand(rows, tokenizer, spec)
