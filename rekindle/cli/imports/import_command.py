"""`rekindle import`: another program's file becomes one that can be submitted."""

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
from rekindle.cli.errors import ExitCode, Trouble
from rekindle.cli.files.json_rows import rows
from rekindle.cli.imports.conversion import Format, convert, format_of
from rekindle.cli.imports.members import LeftOut

_LINES_NAMED = 5
_METHODS = {Format.PREFERENCE: " --method dpo", Format.RANKED: " --method reward"}
_METHODS[Format.RANKED] += " --set method.reward.loss=ranked_margin"
_OURS = ("messages", "input")

File = Annotated[Path, typer.Argument(metavar="FILE", help="JSONL, or one JSON array.")]
Out = Annotated[Path, typer.Argument(metavar="OUT", help="The JSONL file to write.")]


class Asked(StrEnum):
    """A format, or to find out."""

    AUTO = "auto"
    ALPACA = Format.ALPACA.value
    SHAREGPT = Format.SHAREGPT.value
    PROMPT_COMPLETION = Format.PROMPT_COMPLETION.value
    PREFERENCE = Format.PREFERENCE.value
    RANKED = Format.RANKED.value


Kind = Annotated[
    Asked, typer.Option("--format", help="Whose rows they are; auto asks the first one.")
]


@dataclass
class Count:
    """What has become of the rows."""

    kind: Format | None = None
    written: int = 0
    left_out: dict[str, list[int]] = field(default_factory=dict)  # why: lines
    dropped: Counter[str] = field(default_factory=Counter)  # members of rows that were written


def import_file(cli: Cli, *, file: File, out: Out, kind: Kind = Asked.AUTO) -> None:
    """Make OUT, which `rekindle submit` takes, of another program's FILE. No service is needed."""
    _require(file, out)
    count = Count(None if kind is Asked.AUTO else Format(kind.value))
    part = out.with_name(f".{out.name}.part")
    try:
        with part.open("w", encoding="utf-8") as lines:
            for row in _converted(file, count):
                lines.write(json.dumps(row, ensure_ascii=False) + "\n")
        if not count.written:
            raise _nothing(file, count)
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)
    cli.show(_document(out, count), lambda: _told(out, count))


def _converted(file: Path, count: Count) -> Iterator[dict[str, Any]]:
    for line, row in rows(file):
        count.kind = count.kind or _known(file, line, row)
        try:
            converted, dropped = convert(row, count.kind)
        except LeftOut as why:
            count.left_out.setdefault(str(why), []).append(line)
            continue
        count.written += 1
        count.dropped.update(dropped)
        yield converted


def _known(file: Path, line: int, row: dict[str, Any]) -> Format:
    found = format_of(row)
    if found is not None:
        return found
    ours = next((name for name in _OURS if name in row), None)
    has = ", ".join(map(formats.safe, list(row)[:6])) or "nothing"
    raise Trouble(
        f"{file}, line {line}: of no format that is known; the row has {has}.",
        f"It has `{ours}`: submit it as it is."
        if ours
        else f"Say --format, one of {', '.join(Format)}; `rekindle import --help`.",
        exit_code=ExitCode.USAGE,
        code="unknown_format",
    )


def _require(file: Path, out: Path) -> None:
    if not file.is_file():
        raise Trouble(f"{file} is no file.", "Give the file.", exit_code=ExitCode.USAGE)
    if out.exists():
        raise Trouble(f"{out} is there already.", "Give another name.", exit_code=ExitCode.USAGE)


def _nothing(file: Path, count: Count) -> Trouble:
    why = "; ".join(_reasons(count)) or "it holds no rows"
    return Trouble(
        f"{file} holds nothing that could be imported: {why}.",
        "Is --format the right one?" if count.left_out else "Give another file.",
        code="nothing_imported",
    )


def _document(out: Path, count: Count) -> dict[str, Any]:
    left_out = {why: {"rows": len(at), "lines": at[:100]} for why, at in count.left_out.items()}
    rest = sum(len(at) for at in count.left_out.values())
    told = {"file": str(out), "format": count.kind, "rows": count.written}
    return {
        **told,
        "rows_left_out": rest,
        "left_out": left_out,
        "members_not_carried_over": dict(count.dropped),
    }


def _told(out: Path, count: Count) -> Iterator[str]:
    yield f"{formats.count(count.written, 'row')} of format {count.kind} are in {out}"
    rest = sum(len(at) for at in count.left_out.values())
    if rest:
        yield f"{formats.count(rest, 'row')} left out: {'; '.join(_reasons(count))}"
    for name, rows_with_it in count.dropped.most_common():
        rows_told = formats.count(rows_with_it, "row")
        yield f"not carried over: `{formats.safe(name)}` of {rows_told}"
    method = _METHODS.get(count.kind, "") if count.kind else ""
    yield f"Next: rekindle submit {out} --model MODEL{method}"


def _reasons(count: Count) -> Iterator[str]:
    for why, lines in count.left_out.items():
        named = ", ".join(map(str, lines[:_LINES_NAMED]))
        more = " and more" if len(lines) > _LINES_NAMED else ""
        yield f"{formats.safe(why)} (lines {named}{more})"
