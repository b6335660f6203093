"""Graders of reinforcement: read from a file, and validated by the service before any upload."""

from pathlib import Path
from typing import Any

from rekindle.cli.command import Cli
from rekindle.cli.errors import ExitCode, Trouble
from rekindle.cli.formats import part
from rekindle.cli.submit import document_file
from rekindle.cli.submit.document_file import UnreadableDocument

Json = dict[str, Any]
VALIDATE = "/fine_tuning/alpha/graders/validate"
_AT = "method.reinforcement.grader"


def read_grader(path: Path) -> Json:
    """Read the grader in this file; raises Trouble."""
    try:
        grader = document_file.read(path).value
    except UnreadableDocument as error:
        raise _broken(f"--grader {path}", str(error)) from None
    if not isinstance(grader, dict):
        raise _broken(f"--grader {path}", "it must hold one JSON object")
    return grader


def validate_grader(cli: Cli, body: Json, path: Path | None) -> None:
    """Raise Trouble if reinforcement lacks a grader, or the service finds a fault in it."""
    method = part(body, "method")
    if method.get("type") != "reinforcement":
        return
    grader = part(method, "reinforcement").get("grader")
    if grader is None:
        raise Trouble(
            "Reinforcement needs a grader: answers are learnt from by their grades.",
            f"Add --grader FILE, a grader of OpenAI's as JSON, or {_AT} to --config.",
            exit_code=ExitCode.USAGE,
            code="no_grader",
            param=_AT,
        )
    try:
        cli.client.post(VALIDATE, {"grader": grader})
    except Trouble as trouble:
        if trouble.code not in ("invalid_value", "unknown_parameter"):
            raise
        raise _broken(f"--grader {path}" if path else _AT, trouble.message) from None


def _broken(where: str, why: str) -> Trouble:
    return Trouble(
        f"{where}: {why.rstrip('.')}.",
        "Correct it, and try it on your answers: python -m trainer.graders GRADER.json ROWS.jsonl",
        exit_code=ExitCode.USAGE,
        code="broken_grader",
        param=_AT,
    )
