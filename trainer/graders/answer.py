"""Input and output of graders: a model's answer with its row, and a grade."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

CHAT = ("messages", "tools")  # members of a row that the model sees; graders see the others


@dataclass(frozen=True)
class ModelAnswer:
    """An answer of the model, and the row of the file that it answers."""

    text: str
    item: dict[str, Any]
    chat: dict[str, Any] = field(default_factory=dict)  # the prompt: the members CHAT


def divide_row(row: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split a row into the `item` that a grader sees and the chat that the model sees."""
    item = {name: value for name, value in row.items() if name not in CHAT}
    return item, {name: row[name] for name in CHAT if name in row}


class GradeFault(StrEnum):
    """Kinds of errors, under OpenAI's names."""

    INVALID_VARIABLE = "invalid_variable_error"  # a template reads a missing member
    SAMPLE_PARSE = "sample_parse_error"  # a template reads JSON, and the answer is none
    FORMULA = "formula_parse_error"  # calculate_output has no value
    OTHER = "other_error"


@dataclass(frozen=True)
class Grade:
    """A finite score, higher is better; 0.0 with an error where grading failed."""

    score: float
    error: str = ""
    fault: GradeFault = GradeFault.OTHER  # the kind of the error, where there is one
    parts: Mapping[str, "Grade"] = field(default_factory=dict, compare=False)  # of a multi grader


class UngradableAnswer(ValueError):
    """A template cannot be filled for this answer and row."""

    def __init__(self, message: str, fault: GradeFault) -> None:
        super().__init__(message)
        self.fault = fault


class Grader(Protocol):
    """Grades answers independently: equal answers get equal grades, in any order."""

    def grade(self, answers: Sequence[ModelAnswer]) -> list[Grade]:
        """Return one grade for each answer, in order; errors of an answer do not raise."""
        ...

    def close(self) -> None:
        """Release processes; may be called twice."""
        ...
