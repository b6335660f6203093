"""Objects of a JSON file one by one, each with its line: of JSONL, or of one array of any size."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from rekindle.cli.errors import Trouble

_AT_ONCE = 1 << 20  # characters


def rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line (where it begins) and object; raises Trouble that names the line that is wrong."""
    with path.open(encoding="utf-8-sig") as stream:
        try:
            found = _of_array(stream, path) if _is_array(stream) else _of_lines(stream, path)
            for line, row in found:
                if not isinstance(row, dict):
                    raise _wrong(path, line, "it is no JSON object")
                yield line, row
        except UnicodeDecodeError as error:
            raise Trouble(f"{path} is not UTF-8: {error.reason}.", "Save it as UTF-8.") from error


def _is_array(stream: TextIO) -> bool:
    """By the first character that is no space."""
    first = " "
    while first.isspace():
        first = stream.read(1)
    stream.seek(0)
    return first == "["


def _of_lines(stream: TextIO, path: Path) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(stream, 1):
        if line.strip():
            try:
                yield number, _DECODER.decode(line.strip())
            except (ValueError, RecursionError) as error:
                raise _wrong(path, number, f"it is no JSON ({error})") from error


def _of_array(stream: TextIO, path: Path) -> Iterator[tuple[int, Any]]:
    """In memory there is one object at a time, and a piece of the file."""
    before, _, buffer = stream.read(_AT_ONCE).partition("[")
    line = 1 + before.count("\n")
    while True:
        rest = buffer.lstrip(" \t\r\n,")
        line += buffer[: len(buffer) - len(rest)].count("\n")
        buffer = rest
        if buffer.startswith("]"):
            return
        try:
            row, end = _DECODER.raw_decode(buffer)
        except (_GivenTwice, RecursionError) as error:
            raise _wrong(path, line, f"it is no JSON ({error})") from error
        except ValueError as error:
            more = stream.read(max(_AT_ONCE, len(buffer)))
            if not more:
                raise _wrong(path, line, f"it is no JSON ({error})") from error
            buffer += more
            continue
        yield line, row
        line += buffer[:end].count("\n")
        buffer = buffer[end:]


def _wrong(path: Path, line: int, what: str) -> Trouble:
    return Trouble(f"{path}, line {line}: {what}.", "Correct it and import again.", code="bad_json")


class _GivenTwice(ValueError):
    """A member that an object has twice, with different values."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        before = found.setdefault(name, value)
        if before is not value and before != value:  # NaN differs from itself
            raise _GivenTwice(f"{name!a:.40} is given twice in one object")
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_object)
