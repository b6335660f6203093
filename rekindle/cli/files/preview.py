"""`rekindle files preview`: show rows as a base model reads them, trained text marked."""

import shlex
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.text import Text

from rekindle.cli import formats
from rekindle.cli.command import Cli
from rekindle.cli.files.upload import FILES, uploaded
from rekindle.cli.submit.options import complete_method, method_name

Json = dict[str, Any]
_PATIENCE = 60.0  # seconds that the service may need
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
            parser=method_name,
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
    file = uploaded(cli, file, same_once=True)
    asked: Json = {"model": model, "method": method, "max_seq_len": max_seq_len}
    query = asked | {"line": line, "limit": rows}
    shown = cli.client.get(f"{FILES}/{file}/preview", patience=_PATIENCE, **query)
    is_coloured = cli.out.color_system is not None and not cli.out.no_color
    again = _again(file, asked) + cli.project_option
    cli.print_result(shown, lambda: view(shown, again, is_coloured=is_coloured))


def view(shown: Json, again: str, *, is_coloured: bool) -> Iterator[Text]:
    """Yield every example with its counts, every problem, and the command for more rows."""
    yield Text(_KEYS[is_coloured], style="dim")
    if shown["splits_answers"]:
        yield Text(_SPLIT, style="yellow")
    for row in shown["data"]:
        yield Text()
        yield from _row(row, is_coloured=is_coloured)
    if shown["has_more"]:
        yield Text(f"\nMore rows: {again} --line {shown['next_line']}", style="dim")


def _again(file: str, asked: Json) -> str:
    options = [
        f"--{name.replace('_', '-')} {shlex.quote(str(value))}"
        for name, value in asked.items()
        if value is not None
    ]
    return f"rekindle files preview {file} {' '.join(options)}"


def _row(row: Json, *, is_coloured: bool) -> Iterator[Text]:
    several = len(row["examples"]) + row.get("examples_omitted", 0)
    for number, example in enumerate(row["examples"], 1):
        place = f", example {number} of {several}" if several > 1 else ""
        part = example["part"].replace("_", "-")
        told = f"line {row['line']}{place} ({part}): {_counts(example)}"
        yield Text(told, style="bold cyan")
        yield _text(example["segments"], is_coloured=is_coloured)
    if left := row.get("examples_omitted"):
        yield Text(f"... {formats.count(left, 'example')} more of line {row['line']}", style="dim")
    for problem in row["problems"]:
        kind, style = ("error", "red") if problem["is_error"] else ("warning", "yellow")
        told = f"line {row['line']}: {kind}: {formats.printable_line(problem['message'])}"
        yield Text(f"{told} ({problem['code']})", style=style)


def _counts(example: Json) -> str:
    told = formats.count(example["tokens"], "token")
    if example["part"] not in _UNTRAINED:
        told += f", {formats.number(example['trained_tokens'])} trained"
    if (cut := example["tokens"] - example["kept_tokens"]) > 0:
        told += f", {formats.number(cut)} cut off"
    return told + (
        f", label {formats.printable_line(example['label'])!r}" if "label" in example else ""
    )


def _text(segments: list[Json], *, is_coloured: bool) -> Text:
    found = Text()
    for segment in segments:
        kind, text = segment["kind"], segment["text"]
        if is_coloured:
            found.append(_visible(text), style=_STYLES.get(kind, ""))
        elif text:
            before, after = _MARKS.get(kind, ("", ""))
            found.append(f"{before}{_visible(_escaped(text))}{after}")
        if left := segment.get("omitted"):
            found.append(f" ... {formats.count(left, 'character')} ... ", style="dim italic")
    return found


def _escaped(text: str) -> str:
    """Escape the row's own brackets and tildes, which would look like marks."""
    for mark in ("[[", "]]", "~~"):
        text = text.replace(mark, f"\\{mark}")
    return text


def _visible(text: str) -> str:
    """Mark line breaks, and show control characters as symbols."""
    return "".join(map(_shown, text))


def _shown(character: str) -> str:
    if character == "\n":
        return "\u21b5\n"
    if character.isprintable():
        return character
    point = ord(character)
    return chr(0x2400 + point) if point < 0x20 else f"<U+{point:04X}>"  # such as \u241b for escape
