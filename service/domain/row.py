"""What one good row of a dataset comes to, and the formats that rows have."""

from enum import StrEnum
from typing import NamedTuple

from service.domain.json_line import Problem


class Format(StrEnum):
    """What every row of a file is."""

    CHAT = "chat"
    PREFERENCE = "preference"
    PROMPT = "prompt"
    RANKING = "ranking"
    LABELLED = "labelled_text"

    @property
    def sequences(self) -> int:
        """How many the trainer makes of one row, each with its own copy of the prompt.

        Of a ranking there are as many as it has answers, at least so many.
        """
        return 2 if self in (Format.PREFERENCE, Format.RANKING) else 1

    @property
    def plural(self) -> str:
        """As sentences call many of them."""
        return f"{self.singular}s"

    @property
    def singular(self) -> str:
        """As sentences call one of them."""
        return self.value.replace("_", " ")


class Row(NamedTuple):
    """A row that can be trained on."""

    format: Format
    characters: int  # of the contents, all sequences together
    longest: int  # of its longest sequence
    notes: tuple[Problem, ...]  # what is odd about it
    members: frozenset[str] = frozenset()  # of prompts: what a grader may read
    answers: int = 0  # of rankings
    label: str | None = None  # of labelled texts
