"""Turn the check of the rows into refusals, warnings and padded lengths."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Self

from rendering.report import DataFinding, DataReport
from service.domain.errors import InvalidRequest

_MAX_LISTED = 5  # findings in one message
# With these alone a validation file says nothing, and the training goes on all the same.
_TRAINING_ONLY_CODES = ("row_not_trained", "answers_equal", "long_row")


@dataclass(frozen=True, kw_only=True)
class DataCounts:
    """Counts from the check of the training file."""

    rows: int
    examples: int  # of an epoch
    tokens: int  # before they are cut to max_seq_len
    kept_tokens: int
    trained_tokens: int  # targets of the loss
    longest: int  # tokens
    splits_answers: bool

    @classmethod
    def of(cls, report: DataReport) -> Self:
        """Return the part of a report that a plan shows."""
        return cls(**{name: getattr(report, name) for name in cls.__dataclass_fields__})


def refuse_untrainable(
    name: str, report: DataReport, *, param: str, is_validation: bool = False
) -> None:
    """Raise InvalidRequest for a file with rows that cannot be trained on, naming the lines."""
    errors = [e for e in report.errors if not (is_validation and e.code in _TRAINING_ONLY_CODES)]
    if not errors:
        return
    rows = min(sum(error.count for error in errors), report.rows)
    purpose = "Validation" if is_validation else "Training"
    details = "; ".join(f"{error} ({error.code})" for error in errors[:_MAX_LISTED])
    raise InvalidRequest(
        f"{purpose} file {name}: {rows} of {report.rows} rows cannot be trained on. "
        f"{_capital(details)}. Correct the file, upload it again and create a new job: nothing was "
        "spent.",
        code="invalid_validation_file" if is_validation else "invalid_training_file",
        param=param,
    )


def warnings(name: str, report: DataReport) -> Iterator[tuple[DataFinding, str]]:
    """Yield findings of what trains less than expected, each with a sentence."""
    if report.splits_answers and report.examples > report.rows:
        finding = DataFinding(
            code="answers_split",
            is_error=False,
            count=report.rows,
            lines=(),
            message=(
                "the model's chat template renders earlier answers differently from the last one, "
                f"so each trained answer is an example of its own: {report.examples:,} examples "
                f"of {report.rows:,} rows"
            ),
        )
        yield finding, f"{name}: {_capital(finding.message)}."
    for finding in report.findings:  # of a validation file errors too, where they only warn
        yield finding, f"{name}: {finding} ({finding.code})."


def sentences(*files: tuple[str, DataReport | None]) -> list[str]:
    """Return the warnings of several files, each with the file's name."""
    return [text for name, report in files if report for _, text in warnings(name, report)]


def mean_padded(lengths: Sequence[int], side_by_side: int) -> int:
    """Return the expected tokens per sequence when ``side_by_side`` are padded to the longest.

    ``lengths``: of sequences, at evenly spaced ranks, shortest first. The expected maximum of n
    independent draws is the sum of each length times the probability that it is the longest.
    """
    ranks = len(lengths)
    chances = [
        ((n + 1) / ranks) ** side_by_side - (n / ranks) ** side_by_side for n in range(ranks)
    ]
    return ceil(sum(length * chance for length, chance in zip(lengths, chances, strict=True)))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
