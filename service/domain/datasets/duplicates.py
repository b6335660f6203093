"""Find duplicate rows in constant memory."""

from array import array
from typing import Final

MOST_ROWS: Final = 500_000  # different ones that are remembered; with their lines, 12 MiB
_MARK = (1 << 64) - 1


class SeenRows:
    """The first MOST_ROWS different rows, each as a 64-bit hash.

    Two million rows that all differ would have one false alarm in ten million files.
    """

    def __init__(self, most: int = MOST_ROWS) -> None:
        self._most = most
        self._used = 0
        self._size = 1024  # slots: a power of two, never more than half of them used
        self._marks = array("Q", bytes(8 * self._size))
        self._lines = array("I", bytes(4 * self._size))

    @property
    def is_full(self) -> bool:
        """Return whether new rows are no longer recorded; recorded ones are still found."""
        return self._used >= self._most

    def first_line(self, row: bytes, line: int) -> int:
        """Return the line where this row was first seen; 0 if this is the first time."""
        mark = hash(row) & _MARK or 1  # 0 is an empty slot
        slot = self._find(mark)
        if self._marks[slot]:
            return self._lines[slot]
        if self._used < self._most:
            self._marks[slot], self._lines[slot] = mark, line
            self._used += 1
            if 2 * self._used >= self._size:
                self._grow()
        return 0

    def _find(self, mark: int) -> int:
        """Return the slot that holds the mark, or the empty slot for it."""
        marks, last = self._marks, self._size - 1
        slot = mark & last
        while marks[slot] not in (0, mark):
            slot = (slot + 1) & last
        return slot

    def _grow(self) -> None:
        marks, lines = self._marks, self._lines
        self._size *= 2
        self._marks = array("Q", bytes(8 * self._size))
        self._lines = array("I", bytes(4 * self._size))
        for mark, line in zip(marks, lines, strict=True):
            if mark:
                slot = self._find(mark)
                self._marks[slot], self._lines[slot] = mark, line
