"""Parameters of a preflight or preview, as one JSON object on the command line."""

import datetime as dt
import json
from dataclasses import asdict, dataclass
from typing import Self


@dataclass(frozen=True, kw_only=True)
class Task:
    """How to read a data file: model, method and limits."""

    folder: str  # folder of the base model's tokenizer
    method: str
    has_answers: bool  # a row has several answers to one prompt
    max_seq_len: int
    room: int  # maximum tokens of a prompt; its answer takes the rest of max_seq_len
    date: str  # ISO date that templates print
    splits_answers: bool = False
    most_rows: int = 0  # rows of a preview; 0: check the whole file
    first_line: int = 1

    @property
    def today(self) -> dt.date:
        """The date that templates print."""
        return dt.date.fromisoformat(self.date)

    def to_json(self) -> str:
        """Serialize for the command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse `to_json`'s output."""
        return cls(**json.loads(text))
