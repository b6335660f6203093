"""Validate a dataset line by line as it streams by, in constant memory.

A row here is a row for the trainer: lines end at a line feed, blank lines are none.
"""

import hashlib
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any, Final, NoReturn

from contract.choices import Format
from service.domain.datasets import file_kinds
from service.domain.datasets.dataset_line import check_line
from service.domain.datasets.duplicates import MOST_ROWS, SeenRows
from service.domain.datasets.json_line import DatasetProblem
from service.domain.datasets.labelled_line import MOST_LABELS
from service.domain.datasets.long_rows import LongRows, RowLength, tokens_of
from service.domain.datasets.row import DatasetRow
from service.domain.errors import InvalidFile, PayloadTooLarge
from service.domain.training.recipe import DEFAULT_MAX_SEQ_LEN

FEW_EXAMPLES: Final = 10
MOST_SHOWN: Final = 100  # errors or warnings, each with its line; the rest is counted
MOST_OF_A_KIND: Final = 20  # warnings, so that one kind does not hide the others

_BOM = b"\xef\xbb\xbf"
_IN_MESSAGE = 20  # errors that the message spells out
_TOKENS_PER_SEQUENCE = tokens_of(0)


@dataclass(frozen=True, kw_only=True)
class DatasetLimits:
    """The most that one file may hold; settings of the service (REKINDLE_FILE_MAX_...)."""

    max_bytes: int = 8 * 1024**3  # in one request
    max_upload_bytes: int = 8 * 1024**3  # in parts; OpenAI's largest upload
    max_line_bytes: int = 16 * 1024**2
    max_examples: int = 5_000_000


@dataclass(frozen=True, kw_only=True)
class DatasetFinding:
    """An error or warning at one line; the code is one of OpenAI's cookbook's or ours."""

    line: int
    code: str
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.message} ({self.code})"


@dataclass(frozen=True, kw_only=True)
class DatasetSummary:
    """The contents of a whole, valid file."""

    format: Format
    examples: int
    bytes: int
    sha256: str
    characters: int  # of all messages' contents, a prompt counted in each of its sequences
    warnings: tuple[DatasetFinding, ...]  # at most MOST_SHOWN, by line
    warning_counts: dict[str, int]  # all of them, by code
    longest: tuple[RowLength, ...]
    members: dict[str, int]  # of prompts: of its first row, the first line without each, or 0

    answers: int = 0  # of rankings: the most that a row has
    sequences: int = 0  # of all rows together
    labels: tuple[str, ...] = ()  # of labelled texts, sorted

    @property
    def mean_tokens(self) -> int:
        """Return an estimate of the tokens of a mean example, rather high."""
        return round(self.tokens / self.examples)

    @property
    def tokens(self) -> int:
        """Return an estimate of the tokens of the whole file."""
        return tokens_of(self.characters) + (self.sequences - 1) * _TOKENS_PER_SEQUENCE


class DatasetValidator:
    """Validates a file that is fed in chunks of any size, then finished once.

    The chunks never change the verdict.
    """

    def __init__(self, limits: DatasetLimits = DatasetLimits()) -> None:
        self._limits = limits
        self._sha256 = hashlib.sha256()
        self._bytes = 0
        self._head: bytearray | None = bytearray()  # the first bytes, until their kind is known
        self._line = 1  # number of the line that is being collected
        self._partial = bytearray()  # what has come of it
        self._overlong = False  # and whether it was given up
        self._seen_rows = SeenRows()
        self._long_rows = LongRows()
        self._rows = 0  # lines that are not blank
        self._format: Format | None = None  # of the first good row, and so of all
        self._examples = 0
        self._characters = 0
        self._answers = 0
        self._sequences = 0
        self._labels: set[str] = set()
        self._members: dict[str, int] = {}
        self._common_members: frozenset[str] = frozenset()  # those of them that no row lacks so far
        self._errors = _Findings(max_per_kind=MOST_SHOWN)
        self._warnings = _Findings(max_per_kind=MOST_OF_A_KIND)

    @property
    def examples(self) -> int:
        """Return the number of good rows so far."""
        return self._examples

    @property
    def pending_bytes(self) -> int:
        """Return the number of bytes that were fed and not judged yet."""
        return len(self._partial) + len(self._head or b"")

    def feed(self, chunk: bytes) -> None:
        """Feed the next bytes.

        Raises InvalidFile for what cannot be JSONL at all, and PayloadTooLarge beyond a limit.
        """
        room = self._limits.max_bytes - self._bytes
        full_chunk, chunk = chunk, chunk[:room] if len(chunk) > room else chunk
        self._bytes += len(chunk)
        self._sha256.update(chunk)
        if self._head is None:
            self._split(chunk)
        else:
            self._head += chunk
            if len(self._head) >= file_kinds.HEAD_BYTES:
                self._take_head()
        if len(full_chunk) > room:
            raise too_large(self._limits)

    def finish(self) -> DatasetSummary:
        """Return the summary, or raise InvalidFile with the first errors and counts."""
        self._take_head()
        if self._partial or self._overlong:
            self._end_line()
        if self._errors.counts:
            self._refuse(self._report())
        if self._format is None:
            problem = "is empty" if not self._bytes else "holds blank lines only"
            self._refuse(f"The file {problem}. Write one JSON object with `messages` a line.")
        self._warn_about_file()
        return DatasetSummary(
            format=self._format,
            examples=self._examples,
            bytes=self._bytes,
            sha256=self._sha256.hexdigest(),
            characters=self._characters,
            warnings=tuple(self._warnings.shown[:MOST_SHOWN]),
            warning_counts=dict(self._warnings.counts),
            longest=self._long_rows.longest(),
            members=self._members,
            answers=self._answers,
            sequences=self._sequences,
            labels=tuple(sorted(self._labels)),
        )

    def _take_head(self) -> None:
        """Check the first bytes before any line: binary files have line feeds, too."""
        if self._head is not None:
            head, self._head = bytes(self._head), None
            self._refuse_kind(file_kinds.of_head(head[: file_kinds.HEAD_BYTES]))
            self._split(head)

    def _split(self, chunk: bytes) -> None:
        """Judge the lines that end in the chunk, and keep what is left."""
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            self._collect(chunk, start, end)
            self._end_line()
            start = end + 1
        self._collect(chunk, start, len(chunk))

    def _collect(self, chunk: bytes, start: int, end: int) -> None:
        """Keep this piece of the current line, unless the line has grown too long."""
        if len(self._partial) + end - start > self._limits.max_line_bytes:
            self._overlong = True
            self._partial.clear()
        if not self._overlong:
            self._partial += memoryview(chunk)[start:end]

    def _end_line(self) -> None:
        """Judge the current line and begin the next."""
        line = bytes(self._partial)
        if self._overlong:
            self._rows += 1
            most = f"{self._limits.max_line_bytes} bytes (REKINDLE_FILE_MAX_LINE_BYTES)"
            self._error(
                DatasetProblem("line_too_long", f"the line is longer than {most}; split the row")
            )
        elif line and not line.isspace():
            self._judge(line)
        else:
            self._warn("blank_line", "the line is blank; it is skipped")
        self._partial.clear()
        self._overlong = False
        self._line += 1

    def _judge(self, line: bytes) -> None:
        self._rows += 1
        if self._line == 1 and line.startswith(_BOM):
            self._warn("byte_order_mark", "the file starts with a byte order mark; it is skipped")
            line = line[len(_BOM) :]
        verdict = check_line(line, self._format)
        if isinstance(verdict, DatasetProblem):
            if self._rows == 1:
                self._refuse_kind(file_kinds.of_first_line(line))
            self._error(verdict)
            return
        if self._examples == self._limits.max_examples:
            raise PayloadTooLarge(
                f"The file holds more than {self._limits.max_examples} examples, the most that "
                "this service takes (REKINDLE_FILE_MAX_EXAMPLES). Send fewer rows.",
                param="file",
            )
        self._add_row(line, verdict)

    def _add_row(self, line: bytes, row: DatasetRow) -> None:
        self._format = row.format
        self._examples += 1
        self._characters += row.characters
        for note in row.notes:
            self._warn(note.code, note.message)
        self._check_line(line, row.longest)
        self._answers = max(self._answers, row.answers)
        self._sequences += row.answers or row.format.sequences
        if row.format is Format.PROMPT:
            self._update_members(row.members)
        if row.label is not None:
            self._label(row.label)

    def _label(self, name: str) -> None:
        self._labels.add(name)
        if len(self._labels) > MOST_LABELS:
            problem = (
                f"the file has more than {MOST_LABELS} labels, the most that a model can learn"
            )
            self._refuse(f"line {self._line}: {problem}. Are they names of classes?")

    def _update_members(self, members: frozenset[str]) -> None:
        if self._examples == 1:
            self._members = dict.fromkeys(sorted(members), 0)
            self._common_members = members
        for name in self._common_members - members:
            self._members[name] = self._line
        self._common_members &= members

    def _check_line(self, line: bytes, characters: int) -> None:
        """Note duplicates and long rows."""
        if line.endswith(b"\r"):
            if "crlf_line_ends" not in self._warnings.counts:
                self._warn("crlf_line_ends", "the line ends with CR LF; the CR is skipped")
            line = line[:-1]
        if before := self._seen_rows.first_line(line, self._line):
            self._warn("duplicate_row", f"the row is the same as line {before}")
        tokens = self._long_rows.add(self._line, characters)
        if tokens > DEFAULT_MAX_SEQ_LEN:
            self._warn("long_row", long_row(tokens, DEFAULT_MAX_SEQ_LEN, self._format))

    def _warn_about_file(self) -> None:
        last = self._line - 1
        if self._examples < FEW_EXAMPLES:
            message = f"{self._examples} examples are few; {FEW_EXAMPLES} are a beginning"
            self._warnings.add(last, DatasetProblem("few_examples", message))
        if self._seen_rows.is_full:
            message = f"only the first {MOST_ROWS} different rows were looked at for duplicates"
            self._warnings.add(last, DatasetProblem("duplicates_not_complete", message))

    def _error(self, problem: DatasetProblem) -> None:
        self._errors.add(self._line, problem)

    def _warn(self, code: str, message: str) -> None:
        self._warnings.add(self._line, DatasetProblem(code, message))

    def _report(self) -> str:
        counts, findings = self._errors.counts, self._errors.shown[:_IN_MESSAGE]
        total = sum(counts.values())
        kinds = ", ".join(f"{n} {code}" for code, n in counts.most_common())
        head = f"{total} of {self._rows} lines are wrong ({kinds})"
        first = "" if total <= _IN_MESSAGE else f" The first {_IN_MESSAGE}:"
        return f"{head}.{first} {'; '.join(map(str, findings))}. Correct them and upload again."

    def _refuse_kind(self, kind: tuple[str, str] | None) -> None:
        if kind is not None:
            code, message = kind
            self._errors.add(self._line, DatasetProblem(code, message))
            self._refuse(f"line {self._line}: {message}")

    def _refuse(self, message: str) -> NoReturn:
        findings = [asdict(finding) for finding in self._errors.shown[:MOST_SHOWN]]
        raise InvalidFile(message, errors=findings, counts=dict(self._errors.counts))


class _Findings:
    """The first findings, and the count of each code."""

    def __init__(self, *, max_per_kind: int) -> None:
        self.shown: list[DatasetFinding] = []
        self.counts: Counter[str] = Counter()
        self._max_per_kind = max_per_kind

    def add(self, line: int, problem: DatasetProblem) -> None:
        """Keep the finding, unless enough are kept; each code shows at least one."""
        self.counts[problem.code] += 1
        missed = self.counts[problem.code] == 1 and self._max_per_kind < MOST_SHOWN
        full = len(self.shown) >= MOST_SHOWN
        if self.counts[problem.code] > self._max_per_kind or (full and not missed):
            return
        if full:
            self._make_room()
        self.shown.append(DatasetFinding(line=line, code=problem.code, message=problem.message))

    def _make_room(self) -> None:
        """Drop the last finding that is not the first of its code."""
        firsts = {finding.code: index for index, finding in reversed([*enumerate(self.shown)])}
        repeated = [n for n, finding in enumerate(self.shown) if firsts[finding.code] != n]
        del self.shown[max(repeated)]


def too_large(limits: DatasetLimits) -> PayloadTooLarge:
    """Return the refusal of a file that is too large for one request."""
    most = limits.max_upload_bytes
    return PayloadTooLarge(
        f"The file is larger than {limits.max_bytes} bytes, the most that this service takes in "
        "one request (REKINDLE_FILE_MAX_BYTES). Send it in parts with the Uploads API "
        f"(POST /v1/uploads), which takes up to {most} bytes (REKINDLE_UPLOAD_MAX_BYTES).",
        param="file",
    )


def long_row(tokens: int, context: int, rows: Format | None) -> str:
    """Return the warning about a row longer than the context, or than its answer leaves room."""
    if rows is Format.PROMPT:
        return (
            f"the prompt has about {tokens} tokens, and with more than {context} its answer has "
            "too little room; shorten it, or raise training.max_seq_len where the model allows it"
        )
    return (
        f"the row has about {tokens} tokens: what is beyond {context} is cut off; shorten it, or "
        "raise training.max_seq_len where the model allows it"
    )


def as_dicts(findings: tuple[DatasetFinding, ...]) -> list[dict[str, Any]]:
    """Return findings as JSON-able documents."""
    return [asdict(finding) for finding in findings]
