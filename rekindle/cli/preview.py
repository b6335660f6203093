"""`rekindle files preview`: rows as a base model would read them, with what is trained marked."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from rekindle.cli import words
from rekindle.cli.command import Cli
from rekindle.cli.upload import FILES, upload

Json = dict[str, Any]
_STYLES = {"trained": "bold green", "context": "", "cut": "red strike"}
_MARKS = {"trained": ("[[", "]]"), "context": ("", ""), "cut": ("~~", "~~")}  # without colours


def preview_file(
    cli: Cli,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="File id, or a local file to upload first.")
    ],
    model: Annotated[str, typer.Option("--model", help="Base model whose chat template to use.")],
    method: Annotated[
        str, typer.Option("--method", help="Training method; default: by the rows' format.")
    ] = "",
    max_seq_len: Annotated[
        int | None,
        typer.Option("--max-seq-len", min=16, help="Tokens that a sequence is cut to."),
    ] = None,
    line: Annotated[int, typer.Option("--line", min=1, help="First line of the file to show.")] = 1,
    rows: Annotated[int, typer.Option("--rows", "-n", min=1, max=20, help="Number of rows.")] = 3,
) -> None:
    """Show rows as the model reads them: trained text is green, cut-off text struck out.

    Without colours, trained text stands in [[ ]] and cut-off text in ~~ ~~.
    """
    if not file.startswith("file-") or Path(file).exists():
        file = upload(cli, Path(file), same_once=True)["id"]
    shown = cli.client.get(
        f"{FILES}/{file}/preview",
        model=model,
        method=method or None,
        max_seq_len=max_seq_len,
        line=line,
        limit=rows,
    )
    cli.show(shown, lambda: _rows(shown, coloured=cli.out.color_system is not None))


def _rows(shown: Json, *, coloured: bool) -> Iterator[Text]:
    if not shown["data"]:
        yield Text("There is no row at or after this line.")
    for row in shown["data"]:
        several = len(row["examples"])
        for number, example in enumerate(row["examples"], 1):
            part = f", example {number} of {several}" if several > 1 else ""
            yield Text(f"line {row['line']}{part}: {_counts(example)}", style="bold cyan")
            yield _text(example["segments"], coloured=coloured)
        for problem in row["problems"]:
            kind, style = ("error", "red") if problem["is_error"] else ("warning", "yellow")
            told = f"line {row['line']}: {kind}: {words.safe(problem['message'])}"
            yield Text(f"{told} ({problem['code']})", style=style)


def _counts(example: Json) -> str:
    told = f"{example['tokens']} tokens, {example['trained_tokens']} trained"
    if example["tokens"] > example["kept_tokens"]:
        told += f", {example['tokens'] - example['kept_tokens']} cut off"
    return f"{told}, label {words.safe(example['label'])}" if example.get("label") else told


def _text(segments: list[Json], *, coloured: bool) -> Text:
    found = Text()
    for segment in segments:
        kind, text = segment["kind"], _visible(segment["text"])
        if not coloured:
            before, after = _MARKS.get(kind, ("", ""))
            text = f"{before}{text}{after}"
        found.append(text, style=_STYLES.get(kind, ""))
    return found


def _visible(text: str) -> str:
    """Line breaks are kept; whatever else a terminal would obey is not."""
    return "\n".join(words.safe(line) for line in text.split("\n"))
