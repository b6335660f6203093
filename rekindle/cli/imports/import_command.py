"""`rekindle import`: convert another program's file to a training file."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from rekindle.cli import formats
from rekindle.cli.command import Cli
from rekindle.cli.errors import CliError, ExitCode
from rekindle.cli.files.json_rows import read_rows, require_file
from rekindle.cli.files.skipped_rows import SkippedRows
from rekindle.cli.imports.conversion import RowFormat, convert_row, detect_format
from rekindle.cli.imports.members import RowSkipped
from rekindle.cli.output_file import partial_file

_METHODS = {RowFormat.PREFERENCE: " --method dpo", RowFormat.RANKED: " --method reward"}
_METHODS[RowFormat.RANKED] += " --set method.reward.loss=ranked_margin"
_OWN_MEMBERS = ("messages", "input")

File = Annotated[
    Path, typer.Argument(metavar="FILE", help="File to convert: JSONL, or one JSON array.")
]
Out = Annotated[Path, typer.Argument(metavar="OUT", help="JSONL file to write.")]


class InputFormat(StrEnum):
    """Formats of --format, and automatic detection."""

    AUTO = "auto"
    ALPACA = RowFormat.ALPACA.value
    SHAREGPT = RowFormat.SHAREGPT.value
    PROMPT_COMPLETION = RowFormat.PROMPT_COMPLETION.value
    PREFERENCE = RowFormat.PREFERENCE.value
    RANKED = RowFormat.RANKED.value


Kind = Annotated[
    InputFormat,
    typer.Option("--format", help="Input format; `auto` detects it from the first row."),
]


@dataclass
class ImportCount:
    """Counts of written rows, skipped rows and dropped members."""

    kind: RowFormat | None = None
    rows_written: int = 0
    skipped: SkippedRows = field(default_factory=SkippedRows)
    dropped: Counter[str] = field(default_factory=Counter)  # members of rows that were written


def import_file(cli: Cli, *, file: File, out: Out, kind: Kind = InputFormat.AUTO) -> None:
    """Convert another program's FILE to OUT for `rekindle submit`. Needs no service."""
    _require_paths(file, out)
    count = ImportCount(None if kind is InputFormat.AUTO else RowFormat(kind.value))
    with partial_file(out) as part_path:
        with part_path.open("w", encoding="utf-8") as lines:
            for row in _convert_rows(file, count):
                lines.write(json.dumps(row, ensure_ascii=False) + "\n")
        if not count.rows_written:
            raise _no_rows_error(file, count)
    cli.print_result(_document(out, count), lambda: _summary_lines(out, count))


def _convert_rows(file: Path, count: ImportCount) -> Iterator[dict[str, Any]]:
    for line, row in read_rows(file):
        count.kind = count.kind or _require_format(file, line, row)
        try:
            converted, dropped = convert_row(row, count.kind)
        except RowSkipped as reason:
            count.skipped.add(line, str(reason))
            continue
        count.rows_written += 1
        count.dropped.update(dropped)
        yield converted


def _require_format(file: Path, line: int, row: dict[str, Any]) -> RowFormat:
    row_format = detect_format(row)
    if row_format is not None:
        return row_format
    own_member = next((name for name in _OWN_MEMBERS if name in row), None)
    members = ", ".join(map(formats.printable_line, list(row)[:6])) or "nothing"
    raise CliError(
        f"{file}, line {line}: unknown format; the row has {members}.",
        f"It has `{own_member}`; submit it without conversion."
        if own_member
        else f"Pass --format, one of {', '.join(RowFormat)}; see `rekindle import --help`.",
        exit_code=ExitCode.USAGE,
        code="unknown_format",
    )


def _require_paths(file: Path, out: Path) -> None:
    require_file(file)
    if out.exists():
        raise CliError(
            f"{out} already exists.", "Pass another file name.", exit_code=ExitCode.USAGE
        )


def _no_rows_error(file: Path, count: ImportCount) -> CliError:
    why = "; ".join(count.skipped.reasons()) or "it has no rows"
    return CliError(
        f"No row of {file} could be converted: {why}.",
        "Check --format." if count.skipped.total else "Pass another file.",
        code="nothing_imported",
    )


def _document(out: Path, count: ImportCount) -> dict[str, Any]:
    summary = {"file": str(out), "format": count.kind, "rows": count.rows_written}
    return {
        **summary,
        "rows_left_out": count.skipped.total,
        "left_out": count.skipped.as_dict(),
        "members_not_carried_over": dict(count.dropped),
    }


def _summary_lines(out: Path, count: ImportCount) -> Iterator[str]:
    yield f"wrote {formats.count(count.rows_written, 'row')} of format {count.kind} to {out}"
    if total := count.skipped.total:
        yield f"{formats.count(total, 'row')} left out: {'; '.join(count.skipped.reasons())}"
    for name, rows_with_it in count.dropped.most_common():
        rows_text = formats.count(rows_with_it, "row")
        yield f"not carried over: `{formats.printable_line(name)}` of {rows_text}"
    method = _METHODS.get(count.kind, "") if count.kind else ""
    yield f"Next: rekindle submit {out} --model MODEL{method}"
