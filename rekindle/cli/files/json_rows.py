"""Read the objects of a JSON file one by one with their lines: JSONL, or one array of any size."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from rekindle.cli.errors import CliError, ExitCode

_CHUNK = 1 << 20  # characters


def require_file(path: Path) -> None:
    """Raise CliError if the path is not a file."""
    if not path.is_file():
        raise CliError(f"{path} is not a file.", "Pass an existing file.", exit_code=ExitCode.USAGE)


def read_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each object with its first line; raise CliError that names a wrong line."""
    with path.open(encoding="utf-8-sig") as stream:
        try:
            numbered = _read_array(stream, path) if _is_array(stream) else _read_lines(stream, path)
            for line, row in numbered:
                if not isinstance(row, dict):
                    raise _bad_line(path, line, "it is not a JSON object")
                yield line, row
        except UnicodeDecodeError as error:
            raise CliError(f"{path} is not UTF-8: {error.reason}.", "Save it as UTF-8.") from error


def _is_array(stream: TextIO) -> bool:
    """Return whether the first character that is not a space is `[`."""
    first = " "
    while first.isspace():
        first = stream.read(1)
    stream.seek(0)
    return first == "["


def _read_lines(stream: TextIO, path: Path) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(stream, 1):
        if line.strip():
            try:
                yield number, _DECODER.decode(line.strip())
            except (ValueError, RecursionError) as error:
                raise _bad_line(path, number, f"it is not JSON ({error})") from error


def _read_array(stream: TextIO, path: Path) -> Iterator[tuple[int, Any]]:
    """Yield array elements; keeps one object and a piece of the file in memory."""
    before, _, buffer = stream.read(_CHUNK).partition("[")
    line = 1 + before.count("\n")
    while True:
        stripped = buffer.lstrip(" \t\r\n,")
        line += buffer[: len(buffer) - len(stripped)].count("\n")
        buffer = stripped
        if buffer.startswith("]"):
            return
        try:
            row, end = _DECODER.raw_decode(buffer)
        except (_DuplicateMember, RecursionError) as error:
            raise _bad_line(path, line, f"it is not JSON ({error})") from error
        except ValueError as error:
            chunk = stream.read(max(_CHUNK, len(buffer)))
            if not chunk:
                raise _bad_line(path, line, f"it is not JSON ({error})") from error
            buffer += chunk
            continue
        yield line, row
        line += buffer[:end].count("\n")
        buffer = buffer[end:]


def _bad_line(path: Path, line: int, fault: str) -> CliError:
    return CliError(
        f"{path}, line {line}: {fault}.",
        "Correct the line and run the command again.",
        code="bad_json",
    )


class _DuplicateMember(ValueError):
    """An object has a member twice, with different values."""


def _unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in pairs:
        before = members.setdefault(name, value)
        if before is not value and before != value:  # NaN differs from itself
            raise _DuplicateMember(f"{name!a:.40} is given twice in one object")
    return members


_DECODER = json.JSONDecoder(object_pairs_hook=_unique_members)
