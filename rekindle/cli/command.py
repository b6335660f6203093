"""Shared parts of all commands: common options, output, and errors as messages.

`@command` turns a function of a Cli and its own parameters into a typer command: it adds the
shared options to the signature and turns exceptions into messages. A parameter whose type is a
dataclass adds one option for each field.
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
from rekindle.cli.connection import ConnectionOptions, ServiceConnection, resolve_connection
from rekindle.cli.errors import CliError, ExitCode

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rekindle.cli.api_client import ApiClient
    from rekindle.terminal import Console

_PLAIN_WIDTH = 200  # columns, where the output is no terminal: tables are not squeezed
_PANEL = "Common options"

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="Service address. Default: REKINDLE_URL, OPENAI_BASE_URL, or the local stack.",
        rich_help_panel=_PANEL,
    ),
]
Key = Annotated[
    str | None,
    typer.Option(
        "--key",
        metavar="KEY",
        help="API key. Default: REKINDLE_API_KEY, OPENAI_API_KEY, or the local stack's key.",
        rich_help_panel=_PANEL,
    ),
]
Project = Annotated[
    str | None,
    typer.Option(
        "--project",
        metavar="PROJECT",
        help="Project name or id. Default: the key's own project; others need an operator key.",
        rich_help_panel=_PANEL,
    ),
]
StateFolder = Annotated[
    Path | None,
    typer.Option(
        "--state",
        metavar="DIR",
        help="State folder of the local stack. Default: .rekindle in this folder or a parent.",
        rich_help_panel=_PANEL,
    ),
]
AsJson = Annotated[
    bool,
    typer.Option("--json", help="Print the result as JSON.", rich_help_panel=_PANEL),
]


class Cli:
    """Connection options, API client and output of one command."""

    def __init__(self, options: ConnectionOptions, *, as_json: bool) -> None:
        self.options = options
        self.as_json = as_json

    @cached_property
    def connection(self) -> ServiceConnection:
        """Service and key that the options, the environment or a local stack name."""
        return resolve_connection(self.options, os.environ, Path.cwd())

    @property
    def project_option(self) -> str:
        """Option that makes the next command act in the same project; empty without one."""
        return f" --project {shlex.quote(self.options.project)}" if self.options.project else ""

    @cached_property
    def client(self) -> "ApiClient":
        """Client of the service."""
        from rekindle.cli.api_client import ApiClient

        return ApiClient(self.connection)

    def close(self) -> None:
        """Close the connection if a command opened one."""
        if "client" in vars(self):
            self.client.http.close()

    @cached_property
    def out(self) -> "Console":
        """Console of the command's result, on stdout."""
        from rekindle.terminal import Console

        console = Console(soft_wrap=not sys.stdout.isatty())
        if not console.is_terminal and "COLUMNS" not in os.environ:
            console.width = _PLAIN_WIDTH
        return console

    @cached_property
    def err(self) -> "Console":
        """Console of progress, warnings and errors, on stderr."""
        from rekindle.terminal import Console

        return Console(stderr=True)

    def print_result(
        self, document: object, view: "Callable[[], Iterable[RenderableType]]"
    ) -> None:
        """Print the document with --json, or the pieces of ``view()`` otherwise."""
        if self.as_json:
            self.print_json(document, indent=2)
            return
        for piece in view():
            self.out.print(piece)

    def print_json(self, document: object, indent: int | None = None) -> None:
        """Print a document as JSON on stdout."""
        print(printable_json(json.dumps(document, indent=indent, ensure_ascii=False)), flush=True)

    def print_note(self, text: str, style: str = "") -> None:
        """Print a note on stderr; nothing with --json."""
        if not self.as_json:
            self.err.print(text, style=style or None, soft_wrap=True)

    def print_error(self, error: CliError) -> None:
        """Print an error and its advice, or its JSON form with --json."""
        if self.as_json:
            self.print_json(error.as_dict(), indent=2)
            return
        self.err.print(f"error: {error.message}", style="bold red", soft_wrap=True)
        if error.advice:
            self.err.print(error.advice, soft_wrap=True)


def command(function: Callable[..., int | None]) -> Callable[..., None]:
    """Return the typer command of ``function(cli, ...)``, which returns an exit code or None."""

    @wraps(function)
    def run(
        *args: object,
        url: str | None = None,
        key: str | None = None,
        state: Path | None = None,
        project: str | None = None,
        as_json: bool = False,
        **arguments: Any,  # noqa: ANN401 - whatever the command declares
    ) -> None:
        cli = Cli(ConnectionOptions(url, key, state, project), as_json=as_json)
        for name, group in groups.items():
            arguments[name] = group(**{f.name: arguments.pop(f.name) for f in fields(group)})
        raise typer.Exit(run_command(cli, lambda: function(cli, *args, **arguments)))

    parameters = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    groups: dict[str, Any] = {
        p.name: p.annotation for p in parameters if is_dataclass(p.annotation)
    }
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
    keywords = [option for p in parameters for option in _option_parameters(p)]
    run.__signature__ = inspect.Signature([*keywords, *shared])  # type: ignore[attr-defined] # what inspect reads, typer with it
    run.__annotations__ = {p.name: p.annotation for p in [*keywords, *shared]}
    return run


def _option_parameters(parameter: inspect.Parameter) -> Iterator[inspect.Parameter]:
    """Yield the parameter, or one parameter for each field of an options dataclass."""
    group, keyword = parameter.annotation, inspect.Parameter.KEYWORD_ONLY
    if not is_dataclass(group):
        yield parameter.replace(kind=keyword)
        return
    kinds = get_type_hints(group, include_extras=True)
    for field in fields(group):
        yield inspect.Parameter(
            field.name, keyword, default=field.default, annotation=kinds[field.name]
        )


def run_command(cli: Cli, work: Callable[[], int | None]) -> int:
    """Run ``work``, close the connection, and return the exit code."""
    try:
        return _exit_code_of(cli, work)
    finally:
        cli.close()


def _exit_code_of(cli: Cli, work: Callable[[], int | None]) -> int:
    """Run ``work`` and return its exit code; print the message of an exception."""
    try:
        code = work() or ExitCode.OK
        sys.stdout.flush()
    except CliError as error:
        cli.print_error(error)
        return error.exit_code
    except BrokenPipeError:
        _discard_output()
        return ExitCode.NO_READER
    except KeyboardInterrupt:
        cli.print_note("interrupted")
        return ExitCode.INTERRUPTED
    except OSError as error:
        cli.print_error(CliError(f"{error.filename or 'this machine'}: {error.strerror or error}"))
        return ExitCode.FAILED
    return code


def _discard_output() -> None:
    """Redirect stdout to nothing, so that Python's flush at exit cannot fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
