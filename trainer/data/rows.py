"""The rows of a JSONL file, read one by one through an index of their offsets."""

from pathlib import Path

import numpy as np

from rendering import rows
from rendering.chat import count_answers
from rendering.rows import Reader
from rendering.tool_calls import Json
from trainer.hopeless import Hopeless


class Rows:
    """A JSONL file of which only the offsets are held in memory. Blank lines are no rows."""

    def __init__(self, path: Path, read: Reader, *, split: bool = False) -> None:
        """``read`` makes chats of a row. ``split``: each of them is a row, with one chat."""
        self._path, self._read = path, read
        starts: list[int] = []
        places: list[int] = []
        position = 0
        with path.open("rb") as lines:
            for line in lines:
                if line.strip():
                    several = count_answers(rows.parse(line)) if split else 1
                    starts += [position] * several
                    places += range(several)
                position += len(line)
        if not starts:
            raise ValueError(f"{path.name} holds no rows; upload a file with at least one chat")
        self._starts = np.array(starts, dtype=np.int64)
        self._places = np.array(places, dtype=np.int64) if split else None

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, row: int) -> tuple[Json, ...]:
        """What the row holds, or ValueError that says which one is broken."""
        with self._path.open("rb") as lines:
            lines.seek(int(self._starts[row]))
            line = lines.readline()
        try:
            chats = self._read(rows.parse(line))
        except ValueError as error:
            raise self.broken(row, error) from error
        return chats if self._places is None else (chats[self._places[row]],)

    def broken(self, row: int, error: Exception) -> Hopeless:
        """The error, with the row that it is about."""
        return Hopeless(f"{self._path.name}, row {row + 1}: {error}")


def open_rows(path: Path, method: str, *, has_answers: bool, split: bool) -> Rows:
    """The rows of a data file as a training method reads them."""
    read = rows.split_chat if split else rows.reader(method, has_answers=has_answers)
    return Rows(path, read, split=split)
