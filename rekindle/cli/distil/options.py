"""Options of `rekindle distil`: types and help, in groups."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from rekindle.cli.distil.rows import RowKind
from rekindle.cli.errors import CliError, ExitCode

Json = dict[str, Any]
_ASKING, _GRADING = "Requests to the teacher", "Grading of candidates"

File = Annotated[
    Path,
    typer.Argument(
        metavar="PROMPTS",
        help="Prompts: JSONL of chats without their last answer or of `prompt`s, or plain text "
        "with one prompt per line.",
    ),
]
Out = Annotated[Path, typer.Option("--out", metavar="FILE", help="JSONL file to write.")]
Url = Annotated[
    str,
    typer.Option(
        "--teacher-url",
        metavar="URL",
        help="Address of the teacher's API, for example http://host:8000/v1.",
    ),
]
Model = Annotated[
    str, typer.Option("--teacher", metavar="MODEL", help="Model name at the teacher's server.")
]
Kind = Annotated[
    RowKind,
    typer.Option("--kind", help="Kind of rows to write: chats, pairs of answers, or rankings."),
]


@dataclass(frozen=True, kw_only=True)
class RequestOptions:
    """Options of the requests to the teacher."""

    candidates: Annotated[
        int,
        typer.Option(
            "--candidates", min=1, max=16, help="Answers per prompt.", rich_help_panel=_ASKING
        ),
    ] = 4
    temperature: Annotated[
        float,
        typer.Option(
            "--temperature", min=0, max=2, help="Sampling temperature.", rich_help_panel=_ASKING
        ),
    ] = 1.0
    max_tokens: Annotated[
        int,
        typer.Option(
            "--max-tokens",
            min=0,
            help="Maximum tokens of an answer; longer answers are dropped. 0: no limit.",
            rich_help_panel=_ASKING,
        ),
    ] = 1024
    param: Annotated[
        list[str] | None,
        typer.Option(
            "--param",
            metavar="NAME=JSON",
            help="Other request member, for example top_p=0.9; null omits one. Repeatable.",
            rich_help_panel=_ASKING,
        ),
    ] = None
    concurrency: Annotated[
        int,
        typer.Option(
            "--concurrency",
            min=1,
            max=1024,
            help="Maximum number of parallel requests.",
            rich_help_panel=_ASKING,
        ),
    ] = 8
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", min=1, help="Timeout of a reply in seconds.", rich_help_panel=_ASKING
        ),
    ] = 300.0
    cache: Annotated[
        Path | None,
        typer.Option(
            "--cache",
            metavar="FILE",
            help="Reply cache; default: PROMPTS.replies beside the prompts.",
            rich_help_panel=_ASKING,
        ),
    ] = None
    input_price: Annotated[
        float | None,
        typer.Option(
            "--input-price", min=0, help="Price per million input tokens.", rich_help_panel=_ASKING
        ),
    ] = None
    output_price: Annotated[
        float | None,
        typer.Option(
            "--output-price",
            min=0,
            help="Price per million output tokens.",
            rich_help_panel=_ASKING,
        ),
    ] = None

    def sampling(self, temperature: float) -> Json:
        """Return request members other than model and messages; raise CliError."""
        defaults: Json = {"temperature": temperature, "max_tokens": self.max_tokens or None}
        params = dict(_parse_param(text) for text in self.param or [])
        return {name: value for name, value in (defaults | params).items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class GradingOptions:
    """Options for choosing among candidates."""

    judge: Annotated[
        str | None,
        typer.Option(
            "--judge",
            metavar="MODEL",
            help="Model at the same address that grades answers from 1 to 10. Default for pairs "
            "and rankings without an `answer` member: the teacher.",
            rich_help_panel=_GRADING,
        ),
    ] = None
    grader: Annotated[
        Path | None,
        typer.Option(
            "--grader",
            metavar="FILE",
            help="Grader file to use instead of a judge, as for reinforcement. Default for rows "
            "with an `answer`: exact comparison.",
            rich_help_panel=_GRADING,
        ),
    ] = None


def _parse_param(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise usage_error(
            f"--param {text!r} is not NAME=JSON.", "Write it as NAME=JSON, for example top_p=0.9."
        )
    if name in ("model", "messages", "n", "stream"):
        raise usage_error(f"--param {name} is reserved.", "Omit it.")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value  # text needs no quotes


def usage_error(message: str, advice: str) -> CliError:
    """Return a usage error."""
    return CliError(message, advice, exit_code=ExitCode.USAGE, code="wrong_distil")
