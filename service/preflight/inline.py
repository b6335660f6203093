"""Check rows in a thread of this process, without limits: for tests of the service."""

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from rendering import preflight, preview
from rendering.report import DataReport
from rendering.sequences import SplitNeeded
from rendering.task import Task
from rendering.tokenizer import UnusableTokenizer, read_tokenizer
from service.preflight.checker import Files, Rows
from service.preflight.process import unusable, write_files


class InlineChecker:
    """A RowChecker with the code of the child process of `process.py`."""

    async def check(
        self, files: Files, rows: Rows, task: Task, progress: Callable[[int], None]
    ) -> DataReport:
        """Check every row."""
        data = b"".join([chunk async for chunk in rows()])
        return await asyncio.to_thread(_check, files, data, task, progress)

    async def preview(self, files: Files, rows: Rows, task: Task) -> dict[str, Any]:
        """Show some rows."""
        data = b"".join([chunk async for chunk in rows()])
        return await asyncio.to_thread(_preview, files, data, task)


def _preview(files: Files, data: bytes, task: Task) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="rekindle-preview-") as folder:
        write_files(Path(folder), files)
        try:
            lines = preflight.numbered_lines(data.split(b"\n"))
            return preview.preview_rows(read_tokenizer(Path(folder), task.method), task, lines)
        except UnusableTokenizer as error:
            raise unusable(str(error)) from error


def _check(files: Files, data: bytes, task: Task, progress: Callable[[int], None]) -> DataReport:
    with tempfile.TemporaryDirectory(prefix="rekindle-preflight-") as folder:
        write_files(Path(folder), files)
        try:
            checked = preflight.Preflight(read_tokenizer(Path(folder), task.method), task)
            checked.check_lines(list(preflight.numbered_lines(data.split(b"\n"))))
        except UnusableTokenizer as error:
            raise unusable(str(error)) from error
        except SplitNeeded:
            return _check(files, data, replace(task, splits_answers=True), progress)
    progress(checked.rows)
    return checked.report(0.0)
