"""Checks a chat dataset line by line as it streams by: memory stays flat whatever the file.

What is a row here is a row for the trainer: lines end at a line feed, blank lines are none.
"""

import hashlib
from dataclasses import dataclass
from typing import Final

from service.domain.chat_line import Problem, check_line
from service.domain.errors import InvalidRequest, PayloadTooLarge

MAX_BYTES: Final = 512 * 1024 * 1024
MAX_LINE_BYTES: Final = 16 * 1024 * 1024
FEW_EXAMPLES: Final = 10

_BOM = b"\xef\xbb\xbf"
_CHARACTERS_PER_TOKEN = 3.5  # English has about four; fewer is the careful guess
_TOKENS_PER_EXAMPLE = 16  # the chat template's own


@dataclass(frozen=True, kw_only=True)
class LineError:
    """What is wrong with one line; ``code`` is one of OpenAI's cookbook's error types or ours."""

    line: int
    code: str
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.message} ({self.code})"


@dataclass(frozen=True, kw_only=True)
class DatasetSummary:
    """What a whole, valid file holds."""

    examples: int
    bytes: int
    sha256: str
    characters: int  # of all messages' contents
    longest_characters: int  # of one example
    warnings: tuple[str, ...]

    @property
    def mean_tokens(self) -> int:
        """A guess at the tokens of a mean example, rather high than low."""
        return _TOKENS_PER_EXAMPLE + round(self.characters / self.examples / _CHARACTERS_PER_TOKEN)


class ChatValidator:
    """Feed it the file in chunks of any size, then ask it to finish, once.

    How the file is cut into chunks never changes the verdict.
    """

    def __init__(
        self,
        *,
        max_errors: int = 20,
        max_bytes: int = MAX_BYTES,
        max_line_bytes: int = MAX_LINE_BYTES,
    ) -> None:
        self._max_errors = max_errors
        self._max_bytes = max_bytes
        self._max_line_bytes = max_line_bytes
        self._sha256 = hashlib.sha256()
        self._bytes = 0
        self._line = 1  # number of the line that is being collected
        self._partial = bytearray()  # what has come of it
        self._overlong = False  # and whether it was given up
        self._blank_lines = 0
        self._byte_order_mark = False
        self._examples = 0
        self._characters = 0
        self._longest = 0
        self._errors: list[LineError] = []

    @property
    def errors(self) -> tuple[LineError, ...]:
        """The first errors found so far; at most ``max_errors``."""
        return tuple(self._errors)

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes; raises PayloadTooLarge beyond ``max_bytes``."""
        self._bytes += len(chunk)
        if self._bytes > self._max_bytes:
            raise PayloadTooLarge(
                f"The file is larger than {self._max_bytes} bytes. Split it, or send fewer rows.",
                param="file",
            )
        self._sha256.update(chunk)
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            self._collect(chunk, start, end)
            self._end_line()
            start = end + 1
        self._collect(chunk, start, len(chunk))

    def finish(self) -> DatasetSummary:
        """The verdict: raises InvalidRequest(code="invalid_file_format") with the first errors."""
        if self._partial or self._overlong:
            self._end_line()
        if self._errors:
            raise _invalid(self._report())
        if not self._examples:
            raise _invalid("The file holds no rows. Write one JSON object with `messages` a line.")
        return DatasetSummary(
            examples=self._examples,
            bytes=self._bytes,
            sha256=self._sha256.hexdigest(),
            characters=self._characters,
            longest_characters=self._longest,
            warnings=tuple(self._warnings()),
        )

    def _collect(self, chunk: bytes, start: int, end: int) -> None:
        """Keep this piece of the current line, unless the line has grown too long."""
        if len(self._partial) + end - start > self._max_line_bytes:
            self._overlong = True
            self._partial.clear()
        if not self._overlong:
            self._partial += memoryview(chunk)[start:end]

    def _end_line(self) -> None:
        """The current line is whole: judge it and begin the next."""
        if self._overlong:
            limit = self._max_line_bytes
            self._problem(Problem("line_too_long", f"the line is longer than {limit} bytes"))
        elif not self._partial.strip():
            self._blank_lines += 1
        elif len(self._errors) < self._max_errors:  # enough has been said otherwise
            self._judge(bytes(self._partial))
        self._partial.clear()
        self._overlong = False
        self._line += 1

    def _judge(self, line: bytes) -> None:
        if self._line == 1 and line.startswith(_BOM):
            self._byte_order_mark = True
            line = line[len(_BOM) :]
        verdict = check_line(line)
        if isinstance(verdict, Problem):
            self._problem(verdict)
            return
        self._examples += 1
        self._characters += verdict
        self._longest = max(self._longest, verdict)

    def _problem(self, problem: Problem) -> None:
        if len(self._errors) < self._max_errors:
            error = LineError(line=self._line, code=problem.code, message=problem.message)
            self._errors.append(error)

    def _report(self) -> str:
        more = len(self._errors) == self._max_errors
        head = f"The first {len(self._errors)} errors" if more else "Errors"
        return f"{head} in the file: {'; '.join(map(str, self._errors))}. Correct and upload again."

    def _warnings(self) -> list[str]:
        warnings = []
        if self._byte_order_mark:
            warnings.append("The file starts with a byte order mark; it is ignored.")
        if self._blank_lines:
            warnings.append(f"{self._blank_lines} blank lines are ignored.")
        if self._examples < FEW_EXAMPLES:
            warnings.append(f"{self._examples} examples are few; {FEW_EXAMPLES} are a beginning.")
        return warnings


def _invalid(message: str) -> InvalidRequest:
    return InvalidRequest(message, code="invalid_file_format", param="file")
