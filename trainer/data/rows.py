"""The rows of a JSONL file, read one by one through an index of their offsets."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from rendering import rows
from rendering.chat import count_answers
from rendering.rows import Reader, RowError
from rendering.template import RenderError
from rendering.tokenizer import UnusableTokenizer
from rendering.tool_calls import Json
from trainer.process.non_retryable import NonRetryableError

_PART = 1 << 20  # bytes read at once


class JsonlRows:
    """A JSONL file of which only the offsets are held in memory. Blank lines are no rows."""

    def __init__(self, path: Path, read: Reader, *, split: bool = False) -> None:
        """``read`` makes chats of a row. ``split``: each of them is a row, with one chat."""
        self._path, self._read = path, read
        starts: list[int] = []
        places: list[int] = []
        position = 0
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    several = _count_answers(line, f"{path.name}, line {number}") if split else 1
                    starts += [position] * several
                    places += range(several)
                position += len(line)
        if not starts:
            raise NonRetryableError(
                f"{path.name} holds no rows; upload a file with at least one chat"
            )
        self._starts = np.array(starts, dtype=np.int64)
        self._places = np.array(places, dtype=np.int64) if split else None

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, row: int) -> tuple[Json, ...]:
        """What the row holds, or Hopeless that names the line that is broken."""
        with self._path.open("rb") as lines:
            lines.seek(int(self._starts[row]))
            line = lines.readline()
        with self.named(row):
            chats = self._read(rows.parse(line))
            return chats if self._places is None else (chats[self._places[row]],)

    @contextmanager
    def named(self, row: int) -> Iterator[None]:
        """Raise Hopeless that names the row's line for whatever its content makes go wrong."""
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
            raise  # said already, or no fault of the row
        except BaseException as error:  # a panic of the tokenizer's Rust is no Exception
            raise NonRetryableError(f"{self.place(row)}: {_error_text(error)}") from error

    def place(self, row: int) -> str:
        """File and line of the row; blank lines count, as an editor counts them."""
        left, number = int(self._starts[row]), 1
        with self._path.open("rb") as file:
            while left and (part := file.read(min(left, _PART))):
                left, number = left - len(part), number + part.count(b"\n")
        return f"{self._path.name}, line {number}"


def open_rows(path: Path, method: str, *, has_answers: bool, split: bool) -> JsonlRows:
    """The rows of a data file as a training method reads them."""
    read = rows.split_chat if split else rows.reader(method, has_answers=has_answers)
    return JsonlRows(path, read, split=split)


def _count_answers(line: bytes, place: str) -> int:
    try:
        return count_answers(rows.parse(line))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise NonRetryableError(f"{place}: {_error_text(error)}") from error


def _error_text(error: BaseException) -> str:
    """What it says; of errors that were not made for people, their kind as well."""
    if isinstance(error, UnicodeEncodeError):  # its own words are full of code points
        bad = error.object[error.start : error.start + 1]
        return f"{bad!r} is half a surrogate pair and no text; write the whole character"
    ours = isinstance(error, RenderError | RowError | UnusableTokenizer)
    plain = ours or type(error) is ValueError
    return str(error) if plain else f"{type(error).__name__}: {error}"
