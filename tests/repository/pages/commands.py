"""docs/cli.md, from the help of the command line."""

from collections.abc import Iterator
from typing import Any

import typer

from rekindle.cli.main import app
from tests.repository.pages.markdown import code, table
from tests.repository.sources import ROOT

PAGE = ROOT / "docs" / "cli.md"
_HEAD = """\
# Command line

For everyone who uses `rekindle`: every command with its options. `rekindle COMMAND --help` shows
the same. JOB is an id, the unique beginning of one, or `last`.

Generated from the command line's help by `make docs`; do not edit.
"""
_COMMON = "Every command"
_COLUMNS = ("option", "value", "meaning")
_TYPES = {"str": "TEXT", "int": "N", "int range": "N", "float": "NUMBER", "path": "PATH"}


def page() -> str:
    """Return the whole page."""
    group: Any = typer.main.get_command(app)
    context = typer.Context(group, info_name="rekindle")
    lines = [_HEAD, "## Options of every command that calls the service", ""]
    common = group.commands["list"].params
    lines += table(_COLUMNS, (_row(p, context) for p in common if _panel(p) == _COMMON))
    for path, command in _commands(("rekindle",), group):
        lines += _section(path, command, context)
    return "\n".join(lines) + "\n"


def _commands(path: tuple[str, ...], group: Any) -> Iterator[tuple[tuple[str, ...], Any]]:  # noqa: ANN401 - click's own types are private to typer
    for name, command in group.commands.items():
        if command.hidden:
            continue
        if hasattr(command, "commands"):
            yield from _commands((*path, name), command)
        else:
            yield (*path, name), command


def _section(path: tuple[str, ...], command: Any, context: typer.Context) -> Iterator[str]:  # noqa: ANN401 - as above
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    own = [p for p in command.params if p not in arguments and _panel(p) != _COMMON]
    usage = " ".join(
        [*path, *(_placeholder(a) for a in arguments), *(["[OPTIONS]"] if own else [])]
    )
    yield from ("", f"## {' '.join(path)}", "", f"`{usage}`", "")
    yield from (command.help or "").replace("\b", "").strip().splitlines()
    rows = [(code(_placeholder(a)), "", _help(a)) for a in arguments if _help(a)]
    rows += [_row(p, context) for p in own if not p.hidden]
    if rows:
        yield from ("", *table(_COLUMNS, rows))


def _placeholder(argument: Any) -> str:  # noqa: ANN401 - as above
    name = (argument.metavar or argument.name.upper()) + ("..." if argument.nargs == -1 else "")
    return str(name if argument.required else f"[{name}]")


def _row(option: Any, context: typer.Context) -> tuple[str, str, str]:  # noqa: ANN401 - as above
    value = "" if option.is_flag else option.metavar or option.display_type(context)
    type_name = _TYPES.get(value.strip("<>"), value.strip("<>"))
    description = _help(option)
    if option.default not in (None, False, "", [], ()) and "default" not in description:
        description += f" Default: {option.default}."
    return (
        ", ".join(map(code, (*option.opts, *option.secondary_opts))),
        code(type_name),
        description,
    )


def _help(param: Any) -> str:  # noqa: ANN401 - as above
    return str(getattr(param, "help", None) or "")


def _panel(param: Any) -> str:  # noqa: ANN401 - as above
    return str(getattr(param, "rich_help_panel", None) or "")
