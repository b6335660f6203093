"""Read a grader file and have the service validate it before any upload."""

from pathlib import Path
from typing import Any

from rekindle.cli.command import Cli
from rekindle.cli.errors import CliError, ExitCode
from rekindle.cli.formats import object_member
from rekindle.cli.submit import document_file
from rekindle.cli.submit.document_file import UnreadableDocument

Json = dict[str, Any]
VALIDATE = "/fine_tuning/alpha/graders/validate"
_GRADER_MEMBER = "method.reinforcement.grader"


def read_grader(path: Path) -> Json:
    """Read the grader in this file; raise CliError if it is not a JSON object."""
    try:
        grader = document_file.read_document(path).value
    except UnreadableDocument as error:
        raise _invalid_grader(f"--grader {path}", str(error)) from None
    if not isinstance(grader, dict):
        raise _invalid_grader(f"--grader {path}", "it must contain one JSON object")
    return grader


def validate_grader(cli: Cli, body: Json, path: Path | None) -> None:
    """Raise CliError if reinforcement lacks a grader or the service rejects it."""
    method = object_member(body, "method")
    if method.get("type") != "reinforcement":
        return
    grader = object_member(method, "reinforcement").get("grader")
    if grader is None:
        raise CliError(
            "Reinforcement needs a grader.",
            "Pass --grader FILE with a grader in OpenAI's JSON format, "
            f"or set {_GRADER_MEMBER} in --config.",
            exit_code=ExitCode.USAGE,
            code="no_grader",
            param=_GRADER_MEMBER,
        )
    try:
        cli.client.post(VALIDATE, {"grader": grader})
    except CliError as error:
        if error.code not in ("invalid_value", "unknown_parameter"):
            raise
        raise _invalid_grader(
            f"--grader {path}" if path else _GRADER_MEMBER, error.message
        ) from None


def _invalid_grader(where: str, why: str) -> CliError:
    return CliError(
        f"{where}: {why.rstrip('.')}.",
        "Correct it and test it on answers: python -m trainer.graders GRADER.json ROWS.jsonl",
        exit_code=ExitCode.USAGE,
        code="broken_grader",
        param=_GRADER_MEMBER,
    )
