"""Judges the messages of a row: can each be trained on, and is anything about them odd?"""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any, Final

from service.domain.json_line import Problem
from service.domain.tools import check_calls

ROLES: Final = ("system", "developer", "user", "assistant", "tool", "function")

Message = dict[str, Any]

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
_MEANT = {"human": "user", "gpt": "assistant", "bot": "assistant", "model": "assistant"}
_PLAIN = {"role", "content"}
_ODD_ESCAPE = re.compile(rb"\\u(?:00|ff|FF)")  # may be one of those that are looked for below
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def check_all(messages: list[Any], called: str = "message") -> int | Problem:
    """Characters of their contents, or the first thing that is wrong with one of them."""
    characters = 0
    for number, message in enumerate(messages, 1):
        verdict = _check_message(message)
        if isinstance(verdict, Problem):
            return Problem(verdict.code, f"{called} {number}: {verdict.message}")
        characters += verdict
    return characters


def check_learnt(messages: list[Message]) -> Problem | None:
    """What is wrong when nothing is learnt from these messages."""
    if any(m["role"] == "assistant" and m.get("weight", 1) for m in messages):
        return None
    if any(m["role"] == "assistant" for m in messages):
        return Problem(
            "all_weights_zero",
            "every assistant message has weight 0, so nothing is learnt; give one weight 1",
        )
    return Problem(
        "example_missing_assistant_message",
        "no message is the assistant's, so nothing is learnt; add the answer to be learnt",
    )


def odd_roles(roles: list[str]) -> Iterator[Problem]:
    """Turns that are kept, and probably not meant."""
    if "user" not in roles:
        yield Problem("missing_user_message", "no message is the user's")
    if roles[-1] != "assistant":
        yield Problem(
            "last_message_not_assistant",
            f"the last message is of role {roles[-1]}: what follows the last answer is not learnt",
        )
    for before, role in pairwise(roles):
        if role == before and role in ("user", "assistant"):
            message = f"two {role} messages follow each other, which some chat templates refuse"
            yield Problem("repeated_role", message)
            break


def may_be_odd(line: bytes) -> bool:
    """Whether it pays to look for odd characters in the row of this line: hardly ever."""
    not_ascii = not line.isascii() and b"\xef\xbf\xbd" in line
    return not_ascii or b"\x7f" in line or _ODD_ESCAPE.search(line) is not None


def odd_characters(named: Iterable[tuple[str, Message]]) -> Iterator[Problem]:
    """The first text that was damaged before it came here; each message with what it is called."""
    for name, message in named:
        for text in _texts(message.get("content")):
            if found := _CONTROL.search(text):
                shown = f"U+{ord(found.group()):04X}"
                what = f"{name} holds the control character {shown}; is it meant?"
                yield Problem("control_character", what)
                return
            if "\ufffd" in text:
                what = f"{name} holds U+FFFD, which stands for text lost in a conversion"
                yield Problem("replacement_character", what)
                return


def _check_message(message: object) -> int | Problem:
    if not isinstance(message, dict):
        return Problem("data_type", "a message must be a JSON object")
    content = message.get("content")
    plain = message.keys() == _PLAIN and type(content) is str and content.isascii()
    if plain and content and message["role"] in ROLES:
        return len(content)  # nothing below can be wrong with it
    for check in _MESSAGE_CHECKS:
        if problem := check(message):
            return problem
    return sum(map(len, _texts(content)))


def _check_keys(message: dict[str, Any]) -> Problem | None:
    calls = message.get("tool_calls") or message.get("function_call")
    if "role" not in message or ("content" not in message and not calls):
        return Problem("message_missing_key", "`role` and `content` are needed")
    if not message.keys() <= _MESSAGE_KEYS:
        unknown = min(message.keys() - _MESSAGE_KEYS)
        return Problem("message_unrecognized_key", f"{_shown(unknown)} is not a known key")
    return None


def _check_role(message: dict[str, Any]) -> Problem | None:
    role = message["role"]
    if role in ROLES:
        return None
    meant = _MEANT.get(role.lower()) if isinstance(role, str) else None
    remedy = f"write {meant!r}" if meant else f"use one of {', '.join(ROLES)}"
    return Problem("unrecognized_role", f"role {_shown(role)} is not known: {remedy}")


def _check_weight(message: dict[str, Any]) -> Problem | None:
    if "weight" not in message:
        return None
    weight = message["weight"]
    if message["role"] != "assistant":
        return Problem("invalid_weight", "only the assistant's messages have a weight")
    if type(weight) is not int or weight not in (0, 1):
        return Problem("invalid_weight", f"weight {_shown(weight)} must be 0 or 1")
    return None


def _check_content(message: dict[str, Any]) -> Problem | None:
    content = message.get("content")
    if not content and (content is None or content in ("", [])):
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
    if text.isascii():
        return None
    try:
        text.encode()
    except UnicodeEncodeError:
        return Problem("invalid_encoding", "a \\u escape is half of a surrogate pair")
    return None


_MESSAGE_CHECKS: tuple[Callable[[dict[str, Any]], Problem | None], ...] = (
    _check_keys,
    _check_role,
    _check_weight,
    check_calls,
    _check_content,
)


def _texts(content: str | list[dict[str, Any]] | None) -> tuple[str, ...]:
    if isinstance(content, str):
        return (content,)
    return tuple(part["text"] for part in content or ())


def _shown(value: object) -> str:
    """A value from the file in an error message: short, plain ASCII, never a whole tree."""
    if isinstance(value, dict | list):
        return f"of type {type(value).__name__}"
    return f"{value!a:.40}"
