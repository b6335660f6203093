"""Prompts: chats that end where the model is to answer, and what its answer is graded by."""

from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from rendering.rows import prompt
from rendering.tokenizer import Tokenizer
from rendering.tokens import prompt_ids
from trainer.contract import RunSpec
from trainer.data.rows import JsonlRows
from trainer.graders.answer import divide_row


@dataclass(frozen=True)
class ChatPrompt:
    """One row: its tokens, up to where an answer begins, and what the grader knows of it."""

    ids: list[int]
    item: dict[str, Any]
    chat: dict[str, Any]  # what the model sees


class Prompts:
    """The prompts of one data file, each made in the moment when it is asked for."""

    def __init__(self, path: Path, tokenizer: Tokenizer, spec: RunSpec) -> None:
        self._rows, self._tokenizer = JsonlRows(path, prompt), tokenizer
        self._today = date.fromisoformat(spec.date)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, row: int) -> ChatPrompt:
        """The prompt, or Hopeless that names the line that is broken."""
        (found,) = self._rows[row]
        with self._rows.named(row):
            ids = prompt_ids(self._tokenizer, found, self._today)
        return ChatPrompt(ids, *divide_row(found))

    def place(self, row: int) -> str:
        """File and line of the row."""
        return self._rows.place(row)
