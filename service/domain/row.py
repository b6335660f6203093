"""What one good row of a dataset comes to, and the formats that rows have."""

from enum import StrEnum
from typing import NamedTuple

from service.domain.json_line import Problem


class Format(StrEnum):
    """What every row of a file is."""

    CHAT = "chat"
    PREFERENCE = "preference"

    @property
    def sequences(self) -> int:
        """How many the trainer makes of one row, each with its own copy of the prompt."""
        return 2 if self is Format.PREFERENCE else 1

    @property
    def plural(self) -> str:
        """As sentences call many of them."""
        return f"{self}s"


class Row(NamedTuple):
    """A row that can be trained on."""

    format: Format
    characters: int  # of the contents, all sequences together
    longest: int  # of its longest sequence
    notes: tuple[Problem, ...]  # what is odd about it
