"""Count rows, tokens and findings of a file."""

from array import array

from rendering.report import LINES_NAMED, QUANTILES, DataFinding, DataReport
from rendering.sequences import SequenceProblem


class FileTally:
    """Counts of one file; takes four bytes of memory per sequence."""

    def __init__(self) -> None:
        self.rows = 0
        self._examples = self._tokens = self._kept_tokens = self._trained = self._longest = 0
        self._lengths = array("I")
        self._findings: dict[tuple[str, bool], tuple[int, list[int], str]] = {}

    def add_examples(self, count: int) -> None:
        """Count the examples of a readable row."""
        self._examples += count

    def add_sequence(self, tokens: int, kept: int, trained: int) -> None:
        """Count one sequence: its tokens, those within max_seq_len, and the trained ones."""
        self._tokens += tokens
        self._kept_tokens += kept
        self._trained += trained
        self._longest = max(self._longest, tokens)
        self._lengths.append(kept)

    def add_problem(self, line: int, problem: SequenceProblem) -> None:
        """Count a problem of a line."""
        key = (problem.code, problem.is_error)
        count, lines, message = self._findings.get(key, (0, [], problem.message))
        if len(lines) < LINES_NAMED:
            lines.append(line)
        self._findings[key] = (count + 1, lines, message)

    def count_findings(self, code: str) -> int:
        """Return how many rows have a finding of this code."""
        return sum(
            count for (found_code, _), (count, _, _) in self._findings.items() if found_code == code
        )

    def make_errors(self, code: str) -> None:
        """Make all findings of this code errors."""
        if finding := self._findings.pop((code, False), None):
            self._findings[(code, True)] = finding

    def findings(self) -> tuple[DataFinding, ...]:
        """Return the findings so far, errors first."""
        findings = [
            DataFinding(code=code, is_error=bad, count=count, lines=tuple(lines), message=message)
            for (code, bad), (count, lines, message) in self._findings.items()
        ]
        return tuple(sorted(findings, key=lambda f: not f.is_error))

    def report(self, *, splits_answers: bool, template_sha256: str, seconds: float) -> DataReport:
        """Return the report of all rows."""
        return DataReport(
            rows=self.rows,
            examples=self._examples,
            sequences=len(self._lengths),
            tokens=self._tokens,
            kept_tokens=self._kept_tokens,
            trained_tokens=self._trained,
            lengths=_quantiles(self._lengths),
            longest=self._longest,
            splits_answers=splits_answers,
            findings=self.findings(),
            template_sha256=template_sha256,
            cpu_seconds=round(seconds, 3),
        )


def _quantiles(lengths: "array[int]") -> tuple[int, ...]:
    """Return lengths at evenly spaced ranks, shortest first; all lengths if there are few."""
    ranked = sorted(lengths)
    if len(ranked) <= QUANTILES:
        return tuple(ranked)
    return tuple(ranked[int((n + 0.5) * len(ranked) / QUANTILES)] for n in range(QUANTILES))
