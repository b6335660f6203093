"""The seam to checks of data files, which render untrusted text in untrusted templates."""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Protocol

from rendering.report import DataReport
from rendering.task import Task

Files = Mapping[str, bytes]  # name -> content of a base model's files, without weights
Rows = Callable[[], AsyncIterator[bytes]]  # a data file from its start, in chunks of any size


class CheckInterrupted(Exception):
    """The check ended for a reason other than model and rows. Try again."""


class RowChecker(Protocol):
    """Renders and tokenizes data files as training does."""

    async def check(
        self, files: Files, rows: Rows, task: Task, progress: Callable[[int], None]
    ) -> DataReport:
        """Check every row; call ``progress`` with the number of rows done.

        ``task.folder`` is ignored. Raises InvalidRequest where the model's files cannot be used,
        and CheckInterrupted.
        """
        ...

    async def preview(self, files: Files, rows: Rows, task: Task) -> dict[str, Any]:
        """Show ``task.most_rows`` rows from line ``task.first_line`` on (`rendering/preview.py`).

        Raises as ``check`` does.
        """
        ...
