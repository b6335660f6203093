"""Check the rows of a job's files with the base model's own template and tokenizer, once.

A report is stored under a hash of everything that it depends on, for every job with the same files
and model. One replica runs the check; the others see its progress, and restart it when it goes
silent.
"""

import asyncio
import hashlib
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import date, datetime, timedelta
from functools import cache, cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

import rendering
from contract.choices import Format
from rendering.report import DataReport
from rendering.task import Task
from service.db.core.engine import reading as for_reading
from service.db.files import preflights
from service.db.files.files import CONTAINER, File
from service.db.files.preflights import PreflightRow
from service.domain.errors import InvalidRequest, UnsupportedModel
from service.domain.training.recipe import Recipe
from service.operations.storage import integrity
from service.preflight.checker import CheckInterrupted, RowChecker
from service.preflight.process import unusable
from service.storage.store import BlobNotFound, BlobStore, BlobTooLarge, StorageError
from trainer.contract import InputFile, PinnedModel

log = logging.getLogger(__name__)
TOUCH_INTERVAL = timedelta(seconds=2)
_WEIGHTS = (".safetensors", ".safetensors.index.json")
_MAX_FILE_BYTES = 64 * 2**20  # bytes; the largest tokenizers have a third of it
_LIBRARIES = ("jinja2", "tokenizers")


@dataclass(frozen=True, kw_only=True)
class Checked:
    """The reports on a job's files."""

    training: DataReport
    validation: DataReport | None

    @property
    def splits_answers(self) -> bool:
        """Return whether each trained answer is an example of its own."""
        return self.training.splits_answers


@dataclass(frozen=True, kw_only=True)
class RunningCheck:
    """A check that is running."""

    rows_done: int
    rows: int


@dataclass(frozen=True, kw_only=True)
class RowCheck:
    """The check of a data file for one model and task."""

    file: File
    model: PinnedModel
    task: Task

    @property
    def key(self) -> str:
        """Return a hash of everything that the report depends on, except the date."""
        task = asdict(replace(self.task, date="", folder=""))
        payload = json.dumps([self.file.sha256, _vocabulary(self.model), task, _code_hash()])
        return hashlib.sha256(payload.encode()).hexdigest()


def row_checks(
    training: File, validation: File | None, model: PinnedModel, recipe: Recipe, today: date
) -> list[RowCheck]:
    """Return the checks of a job's training file and validation file, if there is one."""
    task = Task(
        folder="",
        method=recipe.method,
        has_answers=recipe.format in (Format.PREFERENCE, Format.RANKING),
        max_seq_len=recipe.max_seq_len,
        room=recipe.context,
        date=today.isoformat(),
    )
    files = filter(None, (training, validation))
    return [RowCheck(file=file, model=model, task=task) for file in files]


@dataclass(frozen=True, kw_only=True)
class Preflights:
    """The checks of this process, and the stored reports of all."""

    engine: AsyncEngine
    store: BlobStore
    checker: RowChecker
    now: Callable[[], datetime]
    _running: dict[str, "asyncio.Task[None]"] = field(default_factory=dict)

    @cached_property
    def _reading(self) -> AsyncEngine:
        return for_reading(self.engine)

    async def find_reports(self, checks: list[RowCheck]) -> Checked | None:
        """Return what earlier checks found, or None where a report is missing."""
        rows_by_key = await self._find_rows(checks)
        reports = [_report(rows_by_key.get(check.key)) for check in checks]
        if any(report is None for report in reports):
            return None
        checked = _pair_reports([report for report in reports if report is not None])
        split = _with_split_answers(checks, checked)
        if split is None:
            return checked
        return await self.find_reports(split)

    async def check_rows(self, checks: list[RowCheck], wait: float) -> Checked | RunningCheck:
        """Return the reports after at most ``wait`` seconds; start missing checks.

        Raises InvalidRequest where the model or the rows cannot be checked.
        """
        rows_by_key = await self._find_rows(checks)
        missing = [check for check in checks if _report(rows_by_key.get(check.key)) is None]
        if missing:
            await self._start_checks(missing, wait)
            rows_by_key = await self._find_rows(checks)
        reports = [_report(rows_by_key.get(check.key)) for check in checks]
        complete = [report for report in reports if report is not None]
        if len(complete) < len(checks):
            return RunningCheck(rows_done=_rows_done(rows_by_key), rows=_rows(checks))
        checked = _pair_reports(complete)
        split = _with_split_answers(checks, checked)
        return checked if split is None else await self.check_rows(split, wait)

    async def preview(self, check: RowCheck, first_line: int, rows: int) -> dict[str, Any]:
        """Show rows as `rendering.preview.preview_rows` does; raises as `RowChecker.preview` does.

        Whether answers are split depends on the whole file: what an earlier check found counts.
        """
        async with self._reading.connect() as conn:
            rows_by_key = await preflights.find(conn, [check.key])
        report = _report(rows_by_key.get(check.key))
        splits = report is not None and report.splits_answers
        task = replace(check.task, first_line=first_line, most_rows=rows, splits_answers=splits)
        try:
            files = await self._model_files(check.model)
        except BlobNotFound:
            raise UnsupportedModel(
                f"Files of model {check.model.name} are gone from the storage account. Stage or "
                "train it again.",
                param="model",
            ) from None
        return await self.checker.preview(
            files, lambda: self.store.stream(CONTAINER, check.file.id), task
        )

    async def _start_checks(self, missing: list[RowCheck], wait: float) -> None:
        for check in missing:
            key = check.key
            if key not in self._running and await self._claim(key):
                task = asyncio.create_task(self._check(check))
                self._running[key] = task
                task.add_done_callback(partial(self._forget, key))
        tasks = [self._running[r.key] for r in missing if r.key in self._running]
        if tasks:
            await asyncio.wait(tasks, timeout=wait)

    def _forget(self, key: str, _task: "asyncio.Task[None]") -> None:
        self._running.pop(key, None)

    async def _claim(self, key: str) -> bool:
        async with self.engine.begin() as conn:
            return await preflights.claim(conn, key, self.now())

    async def _check(self, check: RowCheck) -> None:
        """Check one file and store the report; after an internal error it can start again."""
        key, progress = check.key, _Progress()
        reporting = asyncio.create_task(self._report_progress(key, progress))
        try:
            report = await self.checker.check(
                await self._model_files(check.model),
                lambda: self._rows(check.file),
                check.task,
                progress.add,
            )
        except InvalidRequest as fault:
            refusal = {"code": fault.code, "message": fault.message, "param": fault.param}
            async with self.engine.begin() as conn:
                await preflights.refuse(conn, key, refusal, self.now())
        except BaseException as fault:
            with suppress(SQLAlchemyError):
                async with self.engine.begin() as conn:
                    await preflights.give_up(conn, key)
            if not isinstance(fault, CheckInterrupted | StorageError | SQLAlchemyError):
                raise
            facts = {"file": check.file.id, "cause": str(fault)}
            log.warning("preflight.interrupted", extra=facts)
        else:
            async with self.engine.begin() as conn:
                await preflights.finish(conn, key, report.as_dict(), report.rows, self.now())
        finally:
            reporting.cancel()

    async def _report_progress(self, key: str, progress: "_Progress") -> None:
        while True:
            await asyncio.sleep(TOUCH_INTERVAL.total_seconds())
            with suppress(SQLAlchemyError):  # the next report counts; without any, others restart
                async with self.engine.begin() as conn:
                    await preflights.touch(conn, key, progress.rows, self.now())

    async def _model_files(self, model: PinnedModel) -> Mapping[str, bytes]:
        """Return the model's files without weights; raises InvalidRequest where one has changed."""
        contents = {}
        for file in _without_weights(model):
            try:
                contents[file.name] = await integrity.read_input(
                    self.store, file, most=_MAX_FILE_BYTES
                )
            except BlobTooLarge as fault:
                raise unusable(f"{fault}, the limit for a file without weights.") from None
            except ValueError as error:
                raise UnsupportedModel(
                    f"Model {model.name} cannot be used: {error}. Choose another one.",
                    param="model",
                ) from None
        return contents

    def _rows(self, file: File) -> AsyncIterator[bytes]:
        """Stream the file as it was uploaded."""
        fault = InvalidRequest(
            f"File {file.id} in the storage account has another sha256 than the uploaded one. "
            "Upload it again.",
            code="content_changed",
        )
        return integrity.verify_chunks(self.store.stream(CONTAINER, file.id), file.sha256, fault)

    async def _find_rows(self, checks: list[RowCheck]) -> dict[str, PreflightRow]:
        async with self._reading.connect() as conn:
            rows_by_key = await preflights.find(conn, [check.key for check in checks])
        for row in rows_by_key.values():
            if row.refusal is not None and row.touched_at > self.now() - preflights.REFUSED:
                refusal = row.refusal
                raise InvalidRequest(
                    refusal["message"], code=refusal["code"], param=refusal["param"]
                )
        return rows_by_key


@dataclass
class _Progress:
    rows: int = 0

    def add(self, rows: int) -> None:
        self.rows = rows


def _pair_reports(reports: list[DataReport]) -> Checked:
    return Checked(training=reports[0], validation=reports[1] if reports[1:] else None)


def _with_split_answers(checks: list[RowCheck], checked: Checked) -> list[RowCheck] | None:
    """Return both checks with split answers where only one file needs them; else None."""
    validation = checked.validation
    if validation is None or validation.splits_answers == checked.training.splits_answers:
        return None
    return [replace(check, task=replace(check.task, splits_answers=True)) for check in checks]


def _report(row: PreflightRow | None) -> DataReport | None:
    return DataReport.from_dict(row.report) if row is not None and row.report else None


def _rows(checks: list[RowCheck]) -> int:
    return sum(check.file.examples for check in checks)


def _rows_done(rows_by_key: Mapping[str, PreflightRow]) -> int:
    return sum(row.rows_done for row in rows_by_key.values())


def _without_weights(model: PinnedModel) -> list[InputFile]:
    return [file for file in model.files if not file.name.endswith(_WEIGHTS)]


def _vocabulary(model: PinnedModel) -> list[tuple[str, int, str]]:
    return sorted(
        (file.name, file.size, file.sha256 or file.crc64nvme) for file in _without_weights(model)
    )


@cache
def _code_hash() -> str:
    """Return a hash of the rendering code, so that another release checks again."""
    digest = hashlib.sha256()
    for path in sorted(Path(rendering.__path__[0]).glob("*.py")):
        digest.update(path.read_bytes())
    for library in _LIBRARIES:
        digest.update(version(library).encode())
    return digest.hexdigest()
