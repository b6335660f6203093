"""`rekindle files preview`: show rows as a base model reads them, trained text marked."""

import shlex
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.text import Text

from rekindle.cli import formats
from rekindle.cli.command import Cli
from rekindle.cli.files.upload import FILES, resolve_file_id
from rekindle.cli.submit.options import complete_method, parse_method

Json = dict[str, Any]
_RESPONSE_SECONDS = 60.0  # seconds that the service may need
_STYLES = {"trained": "bold green", "context": "", "cut": "dim red strike"}
_MARKS = {"trained": ("[[", "]]"), "context": ("", ""), "cut": ("~~", "~~")}  # without colours
_KEYS = {
    True: "Trained text is green, cut-off text is struck out, \u21b5 is a line break.",
    False: "Trained text is in [[ ]], cut-off text in ~~ ~~, \u21b5 is a line break.",
}
_UNTRAINED = ("prompt", "labelled")  # parts without a trained token
_SPLIT = (
    "note: the model's chat template renders earlier answers differently from the last one, so "
    "each trained answer is an example of its own."
)


def preview_file(
    cli: Cli,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="File id, or a local file to upload first.")
    ],
    model: Annotated[
        str, typer.Option("--model", "-m", help="Base model, or the model of a job (ft:...).")
    ],
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            metavar="METHOD",
            parser=parse_method,
            autocompletion=complete_method,
            help="Training method; default: by the format of the rows.",
        ),
    ] = None,
    max_seq_len: Annotated[
        int | None,
        typer.Option(
            "--max-seq-len", min=2, help="Maximum sequence length in tokens; default: as for a job."
        ),
    ] = None,
    line: Annotated[int, typer.Option("--line", min=1, help="First line of the file to show.")] = 1,
    rows: Annotated[
        int, typer.Option("--rows", "-n", min=1, max=20, help="Maximum number of rows.")
    ] = 5,
) -> None:
    """Show rows as MODEL reads them, with trained tokens in green.

    Without colours, trained text is in [[ ]] and cut-off text in ~~ ~~.
    """
    file = resolve_file_id(cli, file, reuse=True)
    options: Json = {"model": model, "method": method, "max_seq_len": max_seq_len}
    query = options | {"line": line, "limit": rows}
    preview = cli.client.get(f"{FILES}/{file}/preview", response_seconds=_RESPONSE_SECONDS, **query)
    is_coloured = cli.out.color_system is not None and not cli.out.no_color
    next_command = _next_command(file, options) + cli.project_option
    cli.print_result(preview, lambda: preview_lines(preview, next_command, is_coloured=is_coloured))


def preview_lines(preview: Json, next_command: str, *, is_coloured: bool) -> Iterator[Text]:
    """Yield every example with its counts, every problem, and the command for more rows."""
    yield Text(_KEYS[is_coloured], style="dim")
    if preview["splits_answers"]:
        yield Text(_SPLIT, style="yellow")
    for row in preview["data"]:
        yield Text()
        yield from _row_lines(row, is_coloured=is_coloured)
    if preview["has_more"]:
        yield Text(f"\nMore rows: {next_command} --line {preview['next_line']}", style="dim")


def _next_command(file: str, options: Json) -> str:
    flags = [
        f"--{name.replace('_', '-')} {shlex.quote(str(value))}"
        for name, value in options.items()
        if value is not None
    ]
    return f"rekindle files preview {file} {' '.join(flags)}"


def _row_lines(row: Json, *, is_coloured: bool) -> Iterator[Text]:
    total = len(row["examples"]) + row.get("examples_omitted", 0)
    for number, example in enumerate(row["examples"], 1):
        position = f", example {number} of {total}" if total > 1 else ""
        part = example["part"].replace("_", "-")
        heading = f"line {row['line']}{position} ({part}): {_count_text(example)}"
        yield Text(heading, style="bold cyan")
        yield _marked_text(example["segments"], is_coloured=is_coloured)
    if omitted := row.get("examples_omitted"):
        yield Text(
            f"... {formats.count(omitted, 'example')} more of line {row['line']}", style="dim"
        )
    for problem in row["problems"]:
        kind, style = ("error", "red") if problem["is_error"] else ("warning", "yellow")
        heading = f"line {row['line']}: {kind}: {formats.printable_line(problem['message'])}"
        yield Text(f"{heading} ({problem['code']})", style=style)


def _count_text(example: Json) -> str:
    text = formats.count(example["tokens"], "token")
    if example["part"] not in _UNTRAINED:
        text += f", {formats.number(example['trained_tokens'])} trained"
    if (cut := example["tokens"] - example["kept_tokens"]) > 0:
        text += f", {formats.number(cut)} cut off"
    return text + (
        f", label {formats.printable_line(example['label'])!r}" if "label" in example else ""
    )


def _marked_text(segments: list[Json], *, is_coloured: bool) -> Text:
    marked = Text()
    for segment in segments:
        kind, text = segment["kind"], segment["text"]
        if is_coloured:
            marked.append(_show_control_characters(text), style=_STYLES.get(kind, ""))
        elif text:
            before, after = _MARKS.get(kind, ("", ""))
            marked.append(f"{before}{_show_control_characters(_escape_marks(text))}{after}")
        if omitted := segment.get("omitted"):
            marked.append(f" ... {formats.count(omitted, 'character')} ... ", style="dim italic")
    return marked


def _escape_marks(text: str) -> str:
    """Escape the row's own brackets and tildes, which would look like marks."""
    for mark in ("[[", "]]", "~~"):
        text = text.replace(mark, f"\\{mark}")
    return text


def _show_control_characters(text: str) -> str:
    """Mark line breaks, and show control characters as symbols."""
    return "".join(map(_visible_character, text))


def _visible_character(character: str) -> str:
    if character == "\n":
        return "\u21b5\n"
    if character.isprintable():
        return character
    point = ord(character)
    return chr(0x2400 + point) if point < 0x20 else f"<U+{point:04X}>"  # such as \u241b for escape
