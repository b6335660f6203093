"""Check rows in a child process with limits on memory and time (`rendering/limits.py`).

The child sees the model's files in a folder of its own, the rows on its standard input, and no
variable of our environment.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import rendering
from rendering.preflight import SPLIT_NEEDED
from rendering.report import DataReport
from rendering.task import Task
from service.domain.errors import InvalidRequest, UnsupportedModel
from service.preflight.checker import CheckInterrupted, Files, Rows

SILENT_SECONDS = 300.0  # longest time without progress
PREVIEW_SECONDS = 60.0  # longest time of a preview, with its wait
MAX_PREVIEWS = 2
_LINE_BYTES = 16 * 1024**2  # longest line that the child may print
_MAX_ERROR_LENGTH = 4000  # characters of its standard error
_ROOT = str(Path(rendering.__path__[0]).parent)


class _ChildFault(Exception):
    """The child failed; the message is its last line of output."""


class ProcessChecker:
    """Starts one child process per check, ``at_once`` of them at a time."""

    def __init__(
        self,
        at_once: int | None = None,
        silent_seconds: float = SILENT_SECONDS,
        preview_seconds: float = PREVIEW_SECONDS,
    ) -> None:
        self._check_slots = asyncio.Semaphore(at_once or max(1, (os.cpu_count() or 2) // 2))
        self._preview_slots = asyncio.Semaphore(MAX_PREVIEWS)
        self._silent_seconds, self._preview_seconds = silent_seconds, preview_seconds

    async def check(
        self, files: Files, rows: Rows, task: Task, progress: Callable[[int], None]
    ) -> DataReport:
        """Check every row; repeat the check with split answers if the rows need that."""
        with tempfile.TemporaryDirectory(prefix="rekindle-preflight-") as folder:
            await asyncio.to_thread(write_files, Path(folder), files)
            task = replace(task, folder=folder)
            async with self._check_slots:
                report = await self._run(rows, task, progress)
                if report is None:
                    report = await self._run(rows, replace(task, splits_answers=True), progress)
        if report is None:
            raise InvalidRequest("The rows cannot be split into examples of one answer each.")
        return report

    async def preview(self, files: Files, rows: Rows, task: Task) -> dict[str, Any]:
        """Show some rows; never waits for checks, which may take long."""
        has_begun = False
        try:
            async with asyncio.timeout(self._preview_seconds), self._preview_slots:
                has_begun = True
                return await self._preview(files, rows, task)
        except TimeoutError:
            if not has_begun:
                raise CheckInterrupted("Too many previews are under way.") from None
            raise InvalidRequest(
                f"The preview takes longer than {self._preview_seconds:g} seconds. Ask for fewer "
                "rows, or for an earlier line.",
                code="preview_too_slow",
            ) from None
        except _ChildFault as fault:
            raise InvalidRequest(
                f"The rows cannot be shown: {fault}. Look for rows that are very long or deeply "
                "nested, or preview other lines.",
                code="preview_failed",
            ) from fault

    async def _preview(self, files: Files, rows: Rows, task: Task) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="rekindle-preview-") as folder:
            await asyncio.to_thread(write_files, Path(folder), files)
            task = replace(task, folder=folder)
            message = await self._run_child("rendering.preview", rows, task, _ignore)
        assert message is not None, "nothing is to be split"
        preview: dict[str, Any] = message["preview"]
        return preview

    async def _run(
        self, rows: Rows, task: Task, progress: Callable[[int], None]
    ) -> DataReport | None:
        """Return one child's report; None if answers must be split."""
        try:
            message = await self._run_child("rendering.preflight", rows, task, progress)
        except _ChildFault as fault:
            raise InvalidRequest(
                f"The rows could not be checked: {fault}. Look for rows that are very long or "
                "deeply nested, and submit the job again.",
                code="invalid_training_file",
                param="training_file",
            ) from fault
        return None if message is None else DataReport.from_dict(message["report"])

    async def _run_child(
        self, module: str, rows: Rows, task: Task, progress: Callable[[int], None]
    ) -> dict[str, Any] | None:
        """Run a child; return its last message, or None if answers must be split."""
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", module, task.to_json()),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=child_environment(),
            cwd=task.folder,
            start_new_session=True,
            limit=_LINE_BYTES,
        )
        try:
            return await self._read_result(child, rows, progress)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            await child.wait()

    async def _read_result(
        self, child: Process, rows: Rows, progress: Callable[[int], None]
    ) -> dict[str, Any] | None:
        assert child.stderr is not None
        feeding = asyncio.create_task(_feed(child, rows()))
        feeding.add_done_callback(partial(_kill_unfed, child))
        errors = asyncio.create_task(child.stderr.read(_LINE_BYTES))
        try:
            message = await self._last_message(child, progress)
            code = await child.wait()
            if message is None and code != SPLIT_NEEDED:
                await _raise_fault(feeding, code, await errors)
            return message
        finally:
            for task in (feeding, errors):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task

    async def _last_message(
        self, child: Process, progress: Callable[[int], None]
    ) -> dict[str, Any] | None:
        assert child.stdout is not None
        while True:
            try:
                async with asyncio.timeout(self._silent_seconds):
                    line = await child.stdout.readline()
            except TimeoutError:
                raise CheckInterrupted(
                    f"The check of the rows said nothing for {self._silent_seconds:g} seconds."
                ) from None
            if not line:
                return None
            message: dict[str, Any] = json.loads(line)
            if "unusable" in message:
                raise unusable(message["unusable"])
            if "rows" not in message:
                return message
            progress(message["rows"])


def _ignore(_rows: int) -> None:
    """Drop the progress of a preview, which is short."""


def write_files(folder: Path, files: Files) -> None:
    """Write a model's files side by side; names with folders in them are refused."""
    for name, data in files.items():
        if Path(name).name != name:
            raise unusable(f"The base model has a file {name!r}, which is no plain name.")
        (folder / name).write_bytes(data)


def unusable(message: str) -> InvalidRequest:
    """Return the error for a base model whose tokenizer or template cannot be used."""
    return UnsupportedModel(message, param="model")


async def _feed(child: Process, rows: AsyncIterator[bytes]) -> None:
    """Write the rows to the child's standard input until it stops reading."""
    assert child.stdin is not None
    try:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it reports why
            async for chunk in rows:
                child.stdin.write(chunk)
                await child.stdin.drain()
    finally:
        if isinstance(rows, AsyncGenerator):
            await rows.aclose()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        child.stdin.close()
        await child.stdin.wait_closed()


def _kill_unfed(child: Process, feeding: "asyncio.Task[None]") -> None:
    """Kill a child whose rows cannot be read, as it would wait for them forever."""
    if not feeding.cancelled() and feeding.exception() and child.returncode is None:
        child.kill()


async def _raise_fault(feeding: "asyncio.Task[None]", code: int, errors: bytes) -> None:
    """Raise why there is no report: a failed read of the rows, a kill, or a fault of the child."""
    if feeding.done() and (fault := feeding.exception()) is not None:
        raise fault
    if code < 0:
        raise CheckInterrupted(f"The check of the rows was killed by signal {-code}.")
    lines = errors.decode(errors="replace").strip()[-_MAX_ERROR_LENGTH:].splitlines()
    raise _ChildFault(lines[-1] if lines else "no reason given")


def child_environment() -> dict[str, str]:
    """Return the child's environment: no secrets, and threads for half of the cores."""
    return {
        "PATH": os.defpath,
        "PYTHONPATH": _ROOT,
        "TOKENIZERS_PARALLELISM": "true",
        "RAYON_NUM_THREADS": str(max(1, (os.cpu_count() or 2) // 2)),
    }
