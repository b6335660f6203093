"""Options of `rekindle submit` for learning from grades: the grader, and how answers are given."""

import json
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from rekindle.cli.command import Cli
from rekindle.cli.submit_method import Method
from rekindle.cli.trouble import ExitCode, Trouble

Json = dict[str, Any]
VALIDATE = "/fine_tuning/alpha/graders/validate"
_PANEL = "Of reinforcement"


class Algorithm(StrEnum):
    """What is made of the grades."""

    GRPO = "grpo"
    RLOO = "rloo"
    PPO = "ppo"


@dataclass(frozen=True, kw_only=True)
class Grades:
    """Options that only reinforcement has."""

    grader: Annotated[
        Path | None,
        typer.Option(
            "--grader",
            metavar="FILE",
            help="How answers are graded, a grader of OpenAI's as JSON.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    algorithm: Annotated[
        Algorithm | None,
        typer.Option("--algorithm", help="grpo if not told.", rich_help_panel=_PANEL),
    ] = None
    answers: Annotated[
        int | None,
        typer.Option(
            "--answers",
            min=1,
            max=64,
            help="To each prompt; 8 if not told.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    max_answer_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-answer-tokens",
            min=1,
            help="512 if not told, or half of what a sequence may have.",
            rich_help_panel=_PANEL,
        ),
    ] = None
    temperature: Annotated[
        float | None,
        typer.Option(
            "--temperature",
            help="How freely answers are drawn, above 0 and at most 2; 1 if not told.",
            rich_help_panel=_PANEL,
        ),
    ] = None

    def beside(self, cli: Cli, chosen: Method, method: Json | None) -> Json | None:
        """The request's method with what was told here; raises Trouble before any upload."""
        told = {k: v for k, v in vars(self).items() if k != "grader" and v is not None}
        if chosen is not Method.REINFORCEMENT:
            _refuse(chosen, [*told, *(["grader"] if self.grader else [])])
            return method
        if self.grader is None:
            raise Trouble(
                "Reinforcement needs a grader: answers are learnt from by their grades.",
                "Add --grader FILE, a grader of OpenAI's as JSON.",
                exit_code=ExitCode.USAGE,
                code="no_grader",
            )
        within = (method or {}).get(chosen, {})
        grader = _checked(cli, self.grader)
        return {"type": chosen, chosen: {"grader": grader} | within | told}


def _checked(cli: Cli, path: Path) -> Json:
    """The grader in this file, once the service has found nothing wrong with it."""
    grader = _read(path)
    try:
        cli.client.post(VALIDATE, {"grader": grader})
    except Trouble as trouble:
        if trouble.code not in ("invalid_value", "unknown_parameter"):
            raise
        raise _broken(path, trouble.message) from None
    return grader


def _read(path: Path) -> Json:
    try:
        grader = json.loads(path.read_bytes())
    except OSError as error:
        raise _broken(path, error.strerror or "it cannot be read") from None
    except ValueError as error:  # no JSON, or no UTF-8
        raise _broken(path, f"it is not JSON: {error}") from None
    if not isinstance(grader, dict):
        raise _broken(path, "it must hold one JSON object")
    return grader


def _broken(path: Path, why: str) -> Trouble:
    return Trouble(
        f"--grader {path}: {why.rstrip('.')}.",
        "Mend it, and try it on answers of yours: python -m trainer.graders GRADER.json ROWS.jsonl",
        exit_code=ExitCode.USAGE,
        code="broken_grader",
    )


def _refuse(chosen: Method, named: list[str]) -> None:
    if named:
        options = " and ".join(f"--{name.replace('_', '-')}" for name in named)
        raise Trouble(
            f"{options}: of reinforcement, and the method is {chosen}.",
            "Add --method reinforcement, or leave it out.",
            exit_code=ExitCode.USAGE,
            code="wrong_method",
        )
