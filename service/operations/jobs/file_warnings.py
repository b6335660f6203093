"""Warnings about a job's files as events of the job: one for each kind, not one for each row."""

from datetime import datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from service.db.files.files import File
from service.db.jobs import events
from service.domain.training import preflight
from service.operations.jobs.preflights import Checked

_MAX_LINES_NAMED = 10
_CONTEXT_WARNING = "long_row"  # an estimate, which the check of the rows replaces


async def record_warnings(
    conn: AsyncConnection,
    job_id: str,
    training: File,
    validation: File | None,
    checked: Checked,
    now: datetime,
) -> None:
    """Add an event for each kind of warning.

    Part of the transaction that moves the job, so that each event is written once.
    """
    for file, report in ((training, checked.training), (validation, checked.validation)):
        if file is None or report is None:
            continue
        for finding, message in preflight.warnings(file.filename, report):
            facts = {"file": file.id, "code": finding.code, "count": finding.count}
            data: dict[str, Any] = facts | {"lines": list(finding.lines)}
            code = f"file.{finding.code}"
            await events.add(conn, job_id, now, code, message, level="warn", data=data)
        for code, count, first in _upload_warnings(file):
            data = {"file": file.id, "code": code, "count": count, "warnings": first}
            message = f"{file.filename}: {_sentence(code, count, first)}"
            await events.add(conn, job_id, now, f"file.{code}", message, level="warn", data=data)
    if validation is not None and validation.sha256 == training.sha256:
        message = (
            f"{validation.filename} has the same bytes as {training.filename}, so the validation "
            "loss does not measure unseen rows. Use other rows."
        )
        await events.add(conn, job_id, now, "file.validation_is_training", message, level="warn")


_Kind = tuple[str, int, list[dict[str, Any]]]  # code, how many, the first of them


def _upload_warnings(file: File) -> list[_Kind]:
    return [
        (code, count, [w for w in file.warnings if w["code"] == code])
        for code, count in file.warning_counts.items()
        if code != _CONTEXT_WARNING
    ]


def _sentence(code: str, count: int, first: list[dict[str, Any]]) -> str:
    lines = ", ".join(str(w["line"]) for w in first[:_MAX_LINES_NAMED])
    suffix = " and more" if count > len(first[:_MAX_LINES_NAMED]) else ""
    message = first[0]["message"]
    if count == 1:
        return f"line {lines}: {message}."
    return f"{count} lines ({lines}{suffix}); the first: {message}."
