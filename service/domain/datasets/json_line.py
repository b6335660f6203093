"""Parse one line of JSONL, and explain what is wrong with one that is not JSON."""

import json
from dataclasses import dataclass
from typing import Any

from service.domain import strict_json


@dataclass(frozen=True)
class DatasetProblem:
    """An error or a warning about a line."""

    code: str
    message: str


_NAME = "this is a file's name and not its rows; with curl write -F file=@NAME"


def parse(line: bytes) -> dict[str, Any] | DatasetProblem:
    """Return the line's JSON object, or the problem with it."""
    try:
        row = strict_json.loads(line.decode())
    except UnicodeDecodeError as error:
        return DatasetProblem(
            "invalid_encoding",
            f"byte {error.start + 1} (0x{line[error.start]:02x}) is not UTF-8; save as UTF-8",
        )
    except json.JSONDecodeError as error:
        if line.strip().endswith((b".jsonl", b".json")):
            return DatasetProblem("invalid_json", _NAME)
        return DatasetProblem("invalid_json", _explained(line, error))
    except strict_json.UnstorableText as error:
        return DatasetProblem("invalid_encoding", str(error))
    except ValueError as error:  # a number, a name or a depth that not every parser takes
        return DatasetProblem("invalid_json", str(error))
    if not isinstance(row, dict):
        return DatasetProblem("data_type", "each line must be a JSON object")
    return row


def _explained(line: bytes, error: json.JSONDecodeError) -> str:
    """Return the parser's message, with a remedy for usual causes."""
    position = f"{error.msg} at column {error.colno}"
    remainder = line.decode()[error.pos :].lstrip()
    if error.msg == "Extra data":
        if remainder.startswith(","):
            return "a comma follows the row; JSONL has none between rows: remove it"
        if b"\r" in line.strip():
            return "lines end with CR alone; save the file with LF line ends"
        return f"{position}; write one JSON object a line"
    if line.lstrip().startswith(b"{'"):
        return f"{position}; JSON has double quotes: write rows with json.dumps"
    if error.msg.startswith("Invalid control character"):
        return f"{position}; write it as \\uXXXX (a line break as \\n), or leave it out"
    if remainder[:1] in ("}", "]") and error.msg.startswith(("Expecting", "Illegal trailing")):
        return f"{position}; is there a comma too many before it?"
    if not remainder or error.msg.startswith("Unterminated"):
        return f"{position}; the line breaks off: is the row cut, or spread over several lines?"
    return position
