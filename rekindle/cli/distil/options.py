"""What `rekindle distil` may be told: types and help of its options, in groups."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from rekindle.cli.distil.rows import Kind
from rekindle.cli.errors import ExitCode, Trouble

Json = dict[str, Any]
_ASKING, _GRADING = "How the teacher is asked", "Which candidate is better"

File = Annotated[
    Path,
    typer.Argument(
        metavar="PROMPTS",
        help="JSONL of chats that end before their answer, or of `prompt`s; or plain text, a "
        "prompt a line.",
    ),
]
Out = Annotated[Path, typer.Option("--out", metavar="FILE", help="The JSONL file to write.")]
Url = Annotated[
    str,
    typer.Option("--teacher-url", metavar="URL", help="Of its API, such as http://host:8000/v1."),
]
Model = Annotated[str, typer.Option("--teacher", metavar="MODEL", help="As its server calls it.")]
Sort = Annotated[
    Kind, typer.Option("--kind", help="Rows to make: chats, pairs of answers, or rankings.")
]


@dataclass(frozen=True, kw_only=True)
class Asking:
    """Options of the requests."""

    candidates: Annotated[
        int,
        typer.Option("--candidates", min=1, max=16, help="To each.", rich_help_panel=_ASKING),
    ] = 4
    temperature: Annotated[
        float,
        typer.Option("--temperature", min=0, max=2, help="Of the draws.", rich_help_panel=_ASKING),
    ] = 1.0
    max_tokens: Annotated[
        int,
        typer.Option(
            "--max-tokens",
            min=0,
            help="Longer answers are cut off, and then dropped; 0 sends no limit.",
            rich_help_panel=_ASKING,
        ),
    ] = 1024
    param: Annotated[
        list[str] | None,
        typer.Option(
            "--param",
            metavar="NAME=JSON",
            help="Any other member of a request, such as top_p=0.9; null leaves one out.",
            rich_help_panel=_ASKING,
        ),
    ] = None
    concurrency: Annotated[
        int,
        typer.Option("--concurrency", min=1, max=1024, help="At once.", rich_help_panel=_ASKING),
    ] = 8
    timeout: Annotated[
        float,
        typer.Option("--timeout", min=1, help="Seconds for a reply.", rich_help_panel=_ASKING),
    ] = 300.0
    cache: Annotated[
        Path | None,
        typer.Option(
            "--cache",
            metavar="FILE",
            help="File of kept replies; default: PROMPTS.replies beside the prompts.",
            rich_help_panel=_ASKING,
        ),
    ] = None
    input_price: Annotated[
        float | None,
        typer.Option("--input-price", min=0, help="Of a million tokens.", rich_help_panel=_ASKING),
    ] = None
    output_price: Annotated[
        float | None,
        typer.Option("--output-price", min=0, help="Of a million tokens.", rich_help_panel=_ASKING),
    ] = None

    def sampling(self, temperature: float) -> Json:
        """Members of a request beside model and messages; raises Trouble."""
        usual: Json = {"temperature": temperature, "max_tokens": self.max_tokens or None}
        told = dict(_member(text) for text in self.param or [])
        return {name: value for name, value in (usual | told).items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Grading:
    """Options of the choice among candidates."""

    judge: Annotated[
        str | None,
        typer.Option(
            "--judge",
            metavar="MODEL",
            help="Who gives answers 1 to 10, at the same address. Of pairs and rankings the "
            "teacher if not told, unless rows have an `answer`.",
            rich_help_panel=_GRADING,
        ),
    ] = None
    grader: Annotated[
        Path | None,
        typer.Option(
            "--grader",
            metavar="FILE",
            help="A grader in their place, as for reinforcement. Where rows have an `answer` "
            "and nothing is told, right ones beat wrong ones.",
            rich_help_panel=_GRADING,
        ),
    ] = None


def _member(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise wrong(f"--param {text!r} is no pair.", "Write it as NAME=JSON, such as top_p=0.9.")
    if name in ("model", "messages", "n", "stream"):
        raise wrong(f"--param {name} is not yours to set.", "Leave it out.")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value  # a text need not stand in quotes


def wrong(message: str, advice: str) -> Trouble:
    """What was asked for cannot be."""
    return Trouble(message, advice, exit_code=ExitCode.USAGE, code="wrong_distil")
