"""What a grader gets and gives: an answer of the model with its row, and a grade."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True)
class Answer:
    """What the model wrote, and the row of the file that it answers."""

    text: str
    item: dict[str, Any]
    chat: dict[str, Any] = field(default_factory=dict)  # what was asked: `messages`, `tools`


@dataclass(frozen=True)
class Grade:
    """A finite score, the higher the better; 0.0 with an error where none could be given."""

    score: float
    error: str = ""


class Grader(Protocol):
    """Grades answers, each by itself: the same answer gets the same grade, whatever came before."""

    def grade(self, answers: Sequence[Answer]) -> list[Grade]:
        """One grade for each answer, in order. What is wrong with an answer is no exception."""
        ...

    def close(self) -> None:
        """End what it started. It may be called twice."""
        ...
