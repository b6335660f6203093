"""Report of a data file's preflight. The service reads it too: standard library only."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

LINES_NAMED = 20  # of one kind of finding
QUANTILES = 64


@dataclass(frozen=True, kw_only=True)
class DataFinding:
    """One kind of error or warning, and the lines that have it."""

    code: str
    is_error: bool  # the file cannot train; otherwise a warning
    count: int  # number of rows
    lines: tuple[int, ...]  # the first of them
    message: str  # of the first one

    def __str__(self) -> str:
        lines = ", ".join(map(str, self.lines[:10]))
        if self.count == 1:
            return f"line {lines}: {self.message}"
        ellipsis = ", ..." if self.count > 10 else ""
        return f"{self.count} rows (lines {lines}{ellipsis}); the first: {self.message}"


@dataclass(frozen=True, kw_only=True)
class DataReport:
    """Counts and findings of a data file for one training method and base model."""

    rows: int
    examples: int  # samples of an epoch: rows, or each trained answer by itself
    sequences: int  # of all examples together: a preference has two
    tokens: int  # of all sequences, before they are cut to max_seq_len
    kept_tokens: int  # after it
    trained_tokens: int  # targets of the loss in one epoch
    lengths: tuple[int, ...]  # of sequences after the cut, at QUANTILES evenly spaced ranks
    longest: int  # tokens of a sequence before the cut
    splits_answers: bool  # each trained answer is an example of its own
    findings: tuple[DataFinding, ...] = ()
    template_sha256: str = ""
    cpu_seconds: float = field(default=0.0, compare=False)

    @property
    def errors(self) -> tuple[DataFinding, ...]:
        """Findings with which the file cannot train."""
        return tuple(finding for finding in self.findings if finding.is_error)

    @property
    def warnings(self) -> tuple[DataFinding, ...]:
        """Findings that do not prevent training."""
        return tuple(finding for finding in self.findings if not finding.is_error)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Parse `as_dict`'s output; ignore members of later releases."""
        members = {name: data[name] for name in cls.__dataclass_fields__ if name in data}
        findings = tuple(
            DataFinding(**finding | {"lines": tuple(finding["lines"])})
            for finding in data["findings"]
        )
        return cls(**members | {"lengths": tuple(data["lengths"]), "findings": findings})
