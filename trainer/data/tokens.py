"""Rows as tokens: tokenized on demand, or read from a file of an earlier generation.

The file is safetensors, so it is mapped and cannot run code: ``ids`` (int32) and ``trained``
(uint8) of all sequences in a row, ``starts`` (int64) with the offset of each and the end of the
last one. Its name is a hash of its inputs (`token_cache.py`). The fetcher has verified the bytes;
here only the format is checked.
"""

import logging
from datetime import date
from pathlib import Path
from typing import Any, Protocol

from safetensors import SafetensorError, safe_open

from rendering.templates.tool_calls import Json
from rendering.tokenizer import Tokenizer
from rendering.tokens import Tokens, tokenize_chat, tokenize_labelled
from trainer.contract import RunSpec
from trainer.data.rows import JsonlRows, open_rows
from trainer.data.token_cache import FORMAT

log = logging.getLogger("trainer")
NO_TOKENS = Tokens([], [])  # for rows with fewer answers than others


class TokenSource(Protocol):
    """The tokens of every sequence of one data file; a row may be several adjacent sequences."""

    def __len__(self) -> int:
        """Return the number of sequences."""
        ...

    def __getitem__(self, sequence: int) -> Tokens:
        """Return one sequence, cut to the longest allowed length."""
        ...

    def length(self, sequence: int) -> int:
        """Return the tokens of one sequence."""
        ...


class TokenizedOnDemand:
    """Sequences that are tokenized when they are read."""

    def __init__(self, path: Path, tokenizer: Tokenizer, spec: RunSpec) -> None:
        self._per_row, self._tokenizer = spec.sequences_per_row, tokenizer
        self._rows = open_run_rows(path, spec)
        self._max_seq_len, self._today = spec.max_seq_len, date.fromisoformat(spec.date)
        self._classes = {name: number for number, name in enumerate(spec.labels)}

    def __len__(self) -> int:
        return len(self._rows) * self._per_row

    def __getitem__(self, sequence: int) -> Tokens:
        """Return the sequence; raise NonRetryableError that names a broken line."""
        row, index = divmod(sequence, self._per_row)
        chats = self._rows[row]
        with self._rows.name_row_in_errors(row):
            self._require_room(len(chats))
            return self._tokens(chats[index]) if index < len(chats) else NO_TOKENS

    def length(self, sequence: int) -> int:
        """Return the number of tokens; this tokenizes the sequence."""
        return len(self[sequence].ids)

    def _require_room(self, sequences: int) -> None:
        if sequences > self._per_row:
            raise ValueError(f"{sequences} answers; the run was planned for {self._per_row}")

    def _tokens(self, chat: Json) -> Tokens:
        cut = (self._max_seq_len, self._today)
        if self._classes:
            return tokenize_labelled(self._tokenizer, chat, self._classes, *cut)
        return tokenize_chat(self._tokenizer, chat, *cut)


def open_run_rows(path: Path, spec: RunSpec) -> JsonlRows:
    """Open the rows of a data file as this run reads them."""
    has_answers = spec.sequences_per_row > 1
    return open_rows(path, spec.method, has_answers=has_answers, split=spec.split_answers)


class TokenizedFile:
    """Tokens of a file that `trainer.data.tokenizing` wrote."""

    def __init__(self, path: Path) -> None:
        """Open the file; raise ValueError or OSError when its format is wrong."""
        try:
            file: Any = safe_open(path, "numpy")
            self._starts = file.get_tensor("starts")
            self._ids, self._trained = file.get_slice("ids"), file.get_slice("trained")
        except SafetensorError as e:
            raise ValueError(f"{path.name} is no file of tokens: {e}") from e
        count = int(self._starts[-1]) if len(self._starts) else -1
        file_format = (file.metadata() or {}).get("format")
        shapes = [self._ids.get_shape(), self._trained.get_shape()]
        if file_format != FORMAT or shapes != [[count], [count]]:
            raise ValueError(f"{path.name} is of another format, or not whole")

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, sequence: int) -> Tokens:
        """Return the sequence as it was tokenized."""
        begin, end = int(self._starts[sequence]), int(self._starts[sequence + 1])
        ids, trained = self._ids[begin:end], self._trained[begin:end]
        return Tokens(ids.tolist(), trained.astype(bool).tolist())

    def length(self, sequence: int) -> int:
        """Return the number of tokens."""
        return int(self._starts[sequence + 1] - self._starts[sequence])


def open_tokens(path: Path, rows: Path, tokenizer: Tokenizer, spec: RunSpec) -> TokenSource:
    """Open the tokens at ``path``; tokenize ``rows`` where they are missing or unusable."""
    if path.exists():
        try:
            tokens = TokenizedFile(path)
        except (OSError, ValueError) as e:
            log.warning("%s; tokenizing again", e)
        else:
            log.info("%s: tokenized by an earlier generation", rows.name)
            return tokens
    return TokenizedOnDemand(rows, tokenizer, spec)
