"""What a preflight or a preview is asked for: one JSON object on the command line."""

import datetime as dt
import json
from dataclasses import asdict, dataclass
from typing import Self


@dataclass(frozen=True, kw_only=True)
class Task:
    """How a training run would read a data file."""

    folder: str  # of the base model's tokenizer
    method: str
    has_answers: bool  # a row has several, each with the same prompt
    max_seq_len: int
    room: int  # tokens that a prompt may have; its answer takes the rest of max_seq_len
    date: str  # that templates print, ISO
    splits_answers: bool = False
    most_rows: int = 0  # of a preview; 0: check the whole file
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
        """Parse what `to_json` gave."""
        return cls(**json.loads(text))
