"""Judges one line of a chat dataset: is it a row of OpenAI's supervised chat format?"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

ROLES = ("system", "developer", "user", "assistant", "tool", "function")

_MESSAGE_KEYS = frozenset(
    {
        "role",
        "content",
        "name",
        "weight",
        "tool_calls",
        "tool_call_id",
        "function_call",
        "refusal",
        "annotations",
        "audio",
    }
)
_MAY_BE_EMPTY = ("tool", "function")  # a tool may have nothing to say


@dataclass(frozen=True)
class Problem:
    """The first thing wrong with a line."""

    code: str
    message: str


def check_line(line: bytes) -> int | Problem:
    """The characters of the row's contents, or what is wrong with it."""
    row = _parse(line)
    if isinstance(row, Problem):
        return row
    messages = row.get("messages")
    if not isinstance(messages, list) or not messages:
        return Problem("missing_messages_list", "`messages` must be a list of at least one message")
    if problem := _check_tools(row):
        return problem
    characters = 0
    for number, message in enumerate(messages, 1):
        verdict = _check_message(message)
        if isinstance(verdict, Problem):
            return Problem(verdict.code, f"message {number}: {verdict.message}")
        characters += verdict
    if not any(m["role"] == "assistant" and m.get("weight", 1) for m in messages):
        return Problem(
            "example_missing_assistant_message",
            "no message is the assistant's with a weight other than 0, so nothing is learnt",
        )
    return characters


def _parse(line: bytes) -> dict[str, Any] | Problem:
    try:
        row = json.loads(line.decode(), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        return Problem("invalid_encoding", f"byte {error.start + 1} is not UTF-8; save as UTF-8")
    except RecursionError:
        return Problem("invalid_json", "the JSON is nested too deeply")
    except json.JSONDecodeError as error:
        return Problem("invalid_json", f"{error.msg} at column {error.colno}")
    except ValueError as error:  # NaN, or an integer of thousands of digits
        return Problem("invalid_json", f"{error!s:.80}")
    if not isinstance(row, dict):
        return Problem("data_type", "each line must be a JSON object")
    return row


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def _check_tools(row: dict[str, Any]) -> Problem | None:
    for key in ("tools", "functions"):
        if row.get(key) is not None and not isinstance(row[key], list):
            return Problem("data_type", f"`{key}` must be a list")
    return None


def _check_message(message: object) -> int | Problem:
    if not isinstance(message, dict):
        return Problem("data_type", "a message must be a JSON object")
    for check in _MESSAGE_CHECKS:
        if problem := check(message):
            return problem
    return _characters(message.get("content"))


def _check_keys(message: dict[str, Any]) -> Problem | None:
    calls = message.get("tool_calls") or message.get("function_call")
    if "role" not in message or ("content" not in message and not calls):
        return Problem("message_missing_key", "`role` and `content` are needed")
    if unknown := sorted(set(message) - _MESSAGE_KEYS):
        return Problem("message_unrecognized_key", f"{_shown(unknown[0])} is not a known key")
    return None


def _check_role(message: dict[str, Any]) -> Problem | None:
    if message["role"] in ROLES:
        return None
    roles = ", ".join(ROLES)
    return Problem("unrecognized_role", f"role {_shown(message['role'])} is none of {roles}")


def _check_weight(message: dict[str, Any]) -> Problem | None:
    weight = message.get("weight", 1)
    if message["role"] != "assistant" and "weight" in message:
        return Problem("invalid_weight", "only the assistant's messages have a weight")
    if type(weight) is not int or weight not in (0, 1):
        return Problem("invalid_weight", f"weight {_shown(weight)} must be 0 or 1")
    return None


def _check_calls(message: dict[str, Any]) -> Problem | None:
    calls = message.get("tool_calls")
    if calls is None:
        return None
    if not isinstance(calls, list) or not all(isinstance(c, dict) for c in calls):
        return Problem("data_type", "`tool_calls` must be a list of objects")
    return None


def _check_content(message: dict[str, Any]) -> Problem | None:
    content = message.get("content")
    if content is None or content in ("", []):
        excused = message.get("tool_calls") or message.get("function_call")
        if excused or (content == "" and message["role"] in _MAY_BE_EMPTY):
            return None
        return Problem("missing_content", "`content` is empty")
    if isinstance(content, str):
        return _check_text(content)
    if not isinstance(content, list):
        return Problem("missing_content", "`content` must be a string or a list of text parts")
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text":
            return Problem("unsupported_content_part", "only parts of type text can be trained on")
        if not isinstance(part.get("text"), str):
            return Problem("missing_content", "a text part needs a string `text`")
        if problem := _check_text(part["text"]):
            return problem
    return None


def _check_text(text: str) -> Problem | None:
    """Half a surrogate pair can be written in JSON, but no tokenizer takes it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return Problem("invalid_encoding", "a \\u escape is half of a surrogate pair")
    return None


_MESSAGE_CHECKS: tuple[Callable[[dict[str, Any]], Problem | None], ...] = (
    _check_keys,
    _check_role,
    _check_weight,
    _check_calls,
    _check_content,
)


def _characters(content: str | list[dict[str, Any]] | None) -> int:
    if content is None or isinstance(content, str):
        return len(content or "")
    return sum(len(part["text"]) for part in content)


def _shown(value: object) -> str:
    """A value from the file in an error message: short, plain ASCII, never a whole tree."""
    if isinstance(value, dict | list):
        return f"of type {type(value).__name__}"
    return f"{value!a:.40}"
