"""Read the rows of a JSONL file one by one, through an index of their offsets."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from rendering import rows
from rendering.chat import count_answers
from rendering.rows import Reader, RowError
from rendering.templates.chat_template import RenderError
from rendering.templates.tool_calls import Json
from rendering.tokenizer import UnusableTokenizer
from trainer.process.non_retryable import NonRetryableError

_PART = 1 << 20  # bytes read at once


class JsonlRows:
    """A JSONL file with only its line offsets in memory; blank lines are skipped."""

    def __init__(self, path: Path, reader: Reader, *, split: bool = False) -> None:
        """Index the file.

        Args:
            reader: Converts a parsed row to its chats.
            split: Each chat of a row is a row of its own.
        """
        self._path, self._reader = path, reader
        starts: list[int] = []
        indices: list[int] = []
        position = 0
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    count = _count_answers(line, f"{path.name}, line {number}") if split else 1
                    starts += [position] * count
                    indices += range(count)
                position += len(line)
        if not starts:
            raise NonRetryableError(
                f"{path.name} holds no rows; upload a file with at least one chat"
            )
        self._starts = np.array(starts, dtype=np.int64)
        self._chat_indices = np.array(indices, dtype=np.int64) if split else None

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, row: int) -> tuple[Json, ...]:
        """Return the chats of the row; raise NonRetryableError that names a broken line."""
        with self._path.open("rb") as lines:
            lines.seek(int(self._starts[row]))
            line = lines.readline()
        with self.name_row_in_errors(row):
            chats = self._reader(rows.parse_line(line))
            return chats if self._chat_indices is None else (chats[self._chat_indices[row]],)

    @contextmanager
    def name_row_in_errors(self, row: int) -> Iterator[None]:
        """Convert errors that the row's content causes to NonRetryableError with its line."""
        try:
            yield
        except (
            NonRetryableError,
            OSError,
            MemoryError,
            KeyboardInterrupt,
            SystemExit,
            GeneratorExit,
        ):
            raise  # reported already, or not the row's fault
        except BaseException as error:  # a panic of the tokenizer's Rust is no Exception
            raise NonRetryableError(f"{self.file_and_line(row)}: {_error_text(error)}") from error

    def file_and_line(self, row: int) -> str:
        """Return file and line of the row; blank lines count."""
        remaining, number = int(self._starts[row]), 1
        with self._path.open("rb") as file:
            while remaining and (chunk := file.read(min(remaining, _PART))):
                remaining, number = remaining - len(chunk), number + chunk.count(b"\n")
        return f"{self._path.name}, line {number}"


def open_rows(path: Path, method: str, *, has_answers: bool, split: bool) -> JsonlRows:
    """Open the rows of a data file as a training method reads them."""
    reader = rows.read_split_chats if split else rows.row_reader(method, has_answers=has_answers)
    return JsonlRows(path, reader, split=split)


def _count_answers(line: bytes, location: str) -> int:
    try:
        return count_answers(rows.parse_line(line))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise NonRetryableError(f"{location}: {_error_text(error)}") from error


def _error_text(error: BaseException) -> str:
    """Return the error's text, with its type unless it was written for users."""
    if isinstance(error, UnicodeEncodeError):  # its own words are full of code points
        bad = error.object[error.start : error.start + 1]
        return f"{bad!r} is half a surrogate pair and no text; write the whole character"
    for_users = isinstance(error, RenderError | RowError | UnusableTokenizer)
    plain = for_users or type(error) is ValueError
    return str(error) if plain else f"{type(error).__name__}: {error}"
