"""Prompts for reinforcement learning: chats that the model answers, and what graders need."""

from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from rendering.rows import read_prompt
from rendering.tokenizer import Tokenizer
from rendering.tokens import tokenize_prompt
from trainer.contract import RunSpec
from trainer.data.rows import JsonlRows
from trainer.graders.answer import divide_row


@dataclass(frozen=True)
class ChatPrompt:
    """One row: the tokens before the answer, and the row's members for the grader."""

    ids: list[int]
    item: dict[str, Any]
    chat: dict[str, Any]  # what the model sees


class Prompts:
    """The prompts of one data file, each tokenized on demand."""

    def __init__(self, path: Path, tokenizer: Tokenizer, spec: RunSpec) -> None:
        self._rows, self._tokenizer = JsonlRows(path, read_prompt), tokenizer
        self._today = date.fromisoformat(spec.date)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, row: int) -> ChatPrompt:
        """Return the prompt; raise NonRetryableError that names a broken line."""
        (chat,) = self._rows[row]
        with self._rows.name_row_in_errors(row):
            ids = tokenize_prompt(self._tokenizer, chat, self._today)
        return ChatPrompt(ids, *divide_row(chat))

    def file_and_line(self, row: int) -> str:
        """Return file and line of the row."""
        return self._rows.file_and_line(row)
