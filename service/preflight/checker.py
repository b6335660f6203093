"""The seam to what renders and tokenizes rows: untrusted text in untrusted templates."""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Protocol

from rendering.report import DataReport
from rendering.task import Task

Files = Mapping[str, bytes]  # of a base model but its weights, by name
Rows = Callable[[], AsyncIterator[bytes]]  # a data file from its start, in chunks of any size


class CheckInterrupted(Exception):
    """The check ended for a reason outside of model and rows. Try again."""


class RowChecker(Protocol):
    """Reads data files as training runs would."""

    async def check(
        self, files: Files, rows: Rows, task: Task, progress: Callable[[int], None]
    ) -> DataReport:
        """Check every row; ``progress`` is told how many rows are done.

        ``task.folder`` is ignored. Raises InvalidRequest where the model's files cannot be used,
        and CheckInterrupted.
        """
        ...

    async def preview(self, files: Files, rows: Rows, task: Task) -> dict[str, Any]:
        """Show ``task.most_rows`` rows from line ``task.first_line`` on (`rendering/preview.py`).

        Raises as ``check`` does.
        """
        ...
