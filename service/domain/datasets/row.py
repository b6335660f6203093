"""Define what a valid row of a dataset holds."""

from typing import NamedTuple

from contract.choices import Format
from service.domain.datasets.json_line import DatasetProblem


class DatasetRow(NamedTuple):
    """A row that can be trained on."""

    format: Format
    characters: int  # of the contents, all sequences together
    longest: int  # of its longest sequence
    notes: tuple[DatasetProblem, ...]  # what is odd about it
    members: frozenset[str] = frozenset()  # of prompts: what a grader may read
    answers: int = 0  # of rankings
    label: str | None = None  # of labelled texts
