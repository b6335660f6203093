"""What all commands share: five options, one way to print, one way to fail.

`@command` turns a function of a Cli and its own parameters into one that typer knows: the
shared options are added to its signature, and whatever it raises becomes a sentence. A parameter
whose type is a dataclass stands for an option for each of its fields.
"""

import inspect
import json
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, is_dataclass
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from contract.printable import printable_json
from rekindle.cli.connection import Asked, Connection, connect
from rekindle.cli.errors import ExitCode, Trouble

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rekindle.cli.api_client import Client
    from rekindle.terminal import Console

_PLAIN_WIDTH = 200  # where no terminal says how wide it is: tables keep their columns
_PANEL = "Every command"

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="The service. Else REKINDLE_URL, OPENAI_BASE_URL, or the local stack.",
        rich_help_panel=_PANEL,
    ),
]
Key = Annotated[
    str | None,
    typer.Option(
        "--key",
        metavar="KEY",
        help="The API key. Else REKINDLE_API_KEY, OPENAI_API_KEY, or the local stack's.",
        rich_help_panel=_PANEL,
    ),
]
Project = Annotated[
    str | None,
    typer.Option(
        "--project",
        metavar="PROJECT",
        help="Act in this one, by name or id. Only a key of the operators opens another's.",
        rich_help_panel=_PANEL,
    ),
]
StateFolder = Annotated[
    Path | None,
    typer.Option(
        "--state",
        metavar="DIR",
        help="Talk to the local stack with this state folder. Else .rekindle, here or above.",
        rich_help_panel=_PANEL,
    ),
]
AsJson = Annotated[
    bool,
    typer.Option("--json", help="Print JSON and nothing else.", rich_help_panel=_PANEL),
]


class Cli:
    """What a command works with."""

    def __init__(self, asked: Asked, *, as_json: bool) -> None:
        self.asked = asked
        self.as_json = as_json

    @cached_property
    def connection(self) -> Connection:
        """The service that is meant."""
        return connect(self.asked, os.environ, Path.cwd())

    @property
    def same_project(self) -> str:
        """What the next command needs to act where this one did."""
        return f" --project {shlex.quote(self.asked.project)}" if self.asked.project else ""

    @cached_property
    def client(self) -> "Client":
        """Talks to it."""
        from rekindle.cli.api_client import Client

        return Client(self.connection)

    def close(self) -> None:
        """End the connection if there ever was one."""
        if "client" in vars(self):
            self.client.http.close()

    @cached_property
    def out(self) -> "Console":
        """What a person asked for."""
        from rekindle.terminal import Console

        console = Console(soft_wrap=not sys.stdout.isatty())
        if not console.is_terminal and "COLUMNS" not in os.environ:
            console.width = _PLAIN_WIDTH
        return console

    @cached_property
    def err(self) -> "Console":
        """What a person should know meanwhile: progress, warnings, failures."""
        from rekindle.terminal import Console

        return Console(stderr=True)

    def show(self, document: object, view: "Callable[[], Iterable[RenderableType]]") -> None:
        """The document for a program, or the view of it for a person."""
        if self.as_json:
            self.line(document, indent=2)
            return
        for piece in view():
            self.out.print(piece)

    def line(self, document: object, indent: int | None = None) -> None:
        """JSON on stdout."""
        print(printable_json(json.dumps(document, indent=indent, ensure_ascii=False)), flush=True)

    def note(self, text: str, style: str = "") -> None:
        """A word beside the result; programs do not get it."""
        if not self.as_json:
            self.err.print(text, style=style or None, soft_wrap=True)

    def complain(self, trouble: Trouble) -> None:
        """What went wrong and what to do next."""
        if self.as_json:
            self.line(trouble.as_dict(), indent=2)
            return
        self.err.print(f"error: {trouble.message}", style="bold red", soft_wrap=True)
        if trouble.advice:
            self.err.print(trouble.advice, soft_wrap=True)


def command(function: Callable[..., int | None]) -> Callable[..., None]:
    """A typer command of ``function(cli, ...)``, which returns its exit code or nothing."""

    @wraps(function)
    def run(
        *args: object,
        url: str | None = None,
        key: str | None = None,
        state: Path | None = None,
        project: str | None = None,
        as_json: bool = False,
        **given: Any,  # noqa: ANN401 - whatever the command declares
    ) -> None:
        cli = Cli(Asked(url, key, state, project), as_json=as_json)
        for name, group in groups.items():
            given[name] = group(**{f.name: given.pop(f.name) for f in fields(group)})
        raise typer.Exit(carried_out(cli, lambda: function(cli, *args, **given)))

    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    groups: dict[str, Any] = {p.name: p.annotation for p in own if is_dataclass(p.annotation)}
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, kind, default in (
            ("url", Url, None),
            ("key", Key, None),
            ("state", StateFolder, None),
            ("project", Project, None),
            ("as_json", AsJson, False),
        )
    ]
    keywords = [option for p in own for option in _options(p)]
    run.__signature__ = inspect.Signature([*keywords, *shared])  # type: ignore[attr-defined] # what inspect reads, typer with it
    run.__annotations__ = {p.name: p.annotation for p in [*keywords, *shared]}
    return run


def _options(parameter: inspect.Parameter) -> Iterator[inspect.Parameter]:
    """It, or of a group of options each."""
    group, keyword = parameter.annotation, inspect.Parameter.KEYWORD_ONLY
    if not is_dataclass(group):
        yield parameter.replace(kind=keyword)
        return
    kinds = get_type_hints(group, include_extras=True)
    for field in fields(group):
        yield inspect.Parameter(
            field.name, keyword, default=field.default, annotation=kinds[field.name]
        )


def carried_out(cli: Cli, work: Callable[[], int | None]) -> int:
    """The exit code of ``work``, and nothing left open."""
    try:
        return _said(cli, work)
    finally:
        cli.close()


def _said(cli: Cli, work: Callable[[], int | None]) -> int:
    """The exit code of ``work``; whatever it raises is said in a sentence."""
    try:
        code = work() or ExitCode.OK
        sys.stdout.flush()
    except Trouble as trouble:
        cli.complain(trouble)
        return trouble.exit_code
    except BrokenPipeError:
        _hush()
        return ExitCode.NO_READER
    except KeyboardInterrupt:
        cli.note("interrupted")
        return ExitCode.INTERRUPTED
    except OSError as error:
        cli.complain(Trouble(f"{error.filename or 'this machine'}: {error.strerror or error}"))
        return ExitCode.FAILED
    return code


def _hush() -> None:
    """Nobody reads: what is still buffered must not fail again when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
