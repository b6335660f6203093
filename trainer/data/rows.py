"""The rows of a JSONL file, read one by one through an index of their offsets."""

import json
from pathlib import Path
from typing import Any

import numpy as np


class Rows:
    """A JSONL file of which only the offsets are held in memory. Blank lines are no rows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        starts, position = [], 0
        with path.open("rb") as lines:
            for line in lines:
                if line.strip():
                    starts.append(position)
                position += len(line)
        if not starts:
            raise ValueError(f"{path.name} holds no rows; upload a file with at least one chat")
        self._starts = np.array(starts, dtype=np.int64)

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, row: int) -> dict[str, Any]:
        """The parsed row, or ValueError that says which one is broken."""
        with self._path.open("rb") as lines:
            lines.seek(int(self._starts[row]))
            line = lines.readline()
        try:
            parsed = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{self._path.name}, row {row + 1}: not JSON ({error})") from error
        if not isinstance(parsed, dict) or not isinstance(parsed.get("messages"), list):
            raise ValueError(f"{self._path.name}, row {row + 1}: needs a list `messages`")
        return parsed
