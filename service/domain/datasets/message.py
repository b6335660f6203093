"""Check the messages of a row: whether each can be trained on, and what is unusual."""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any, Final

from service.domain.datasets.json_line import DatasetProblem
from service.domain.datasets.tools import check_calls, odd_calls

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
        "reasoning_content",
        "annotations",
        "audio",
    }
)
_TEXTS = frozenset({"name", "tool_call_id", "reasoning_content", "refusal"})
_ROLE_OF_MEMBER = {  # members that messages of one role have
    "tool_calls": "assistant",
    "function_call": "assistant",
    "reasoning_content": "assistant",
    "tool_call_id": "tool",
}
_NOT_RENDERED = {"refusal": "write its text as `content`", "audio": "leave the row out"}
_MAY_BE_EMPTY = ("tool", "function")  # a tool may have nothing to say
_ROLE_ALIASES = {"human": "user", "gpt": "assistant", "bot": "assistant", "model": "assistant"}
PLAIN: Final = {"role", "content"}
_ODD_ESCAPE = re.compile(rb"\\u(?:00|ff|FF)")  # may be one of those that are looked for below
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def check_all(messages: list[Any], called: str = "message") -> int | DatasetProblem:
    """Return the characters of the messages' contents, or the first problem."""
    characters = 0
    for number, message in enumerate(messages, 1):
        if type(message) is dict and message.keys() == PLAIN and message["role"] in ROLES:
            content = message["content"]
            if type(content) is str and content:
                characters += len(content)  # nothing below can be wrong with it
                continue
        if problem := _check_message(message):
            return DatasetProblem(problem.code, f"{called} {number}: {problem.message}")
        characters += sum(map(len, _texts(message)))
    return characters


def check_learnt(messages: list[Message]) -> DatasetProblem | None:
    """Return the problem if nothing is learnt from these messages."""
    for message in reversed(messages):
        if message["role"] == "assistant" and message.get("weight", 1):
            return None
    if any(m["role"] == "assistant" for m in messages):
        return DatasetProblem(
            "all_weights_zero",
            "every assistant message has weight 0, so nothing is learnt; give one weight 1",
        )
    return DatasetProblem(
        "example_missing_assistant_message",
        "no message is the assistant's, so nothing is learnt; add the answer to be learnt",
    )


def odd_roles(roles: list[str]) -> Iterator[DatasetProblem]:
    """Yield warnings about the order of roles."""
    if "user" not in roles:
        yield DatasetProblem("missing_user_message", "no message is the user's")
    if roles[-1] != "assistant":
        yield DatasetProblem(
            "last_message_not_assistant",
            f"the last message is of role {roles[-1]}: what follows the last answer is not learnt",
        )
    for before, role in pairwise(roles):
        if role == before and role in ("user", "assistant"):
            message = f"two {role} messages follow each other, which some chat templates refuse"
            yield DatasetProblem("repeated_role", message)
            break


def with_names(parts: dict[str, list[Message]]) -> Iterator[tuple[str, Message]]:
    """Yield each message with its name: its number, after the name of its part of the row."""
    for part, messages in parts.items():
        prefix = f"{part}, message" if part else "message"
        yield from ((f"{prefix} {number}", m) for number, m in enumerate(messages, 1))


def odd_messages(
    line: bytes, holder: dict[str, Any] | None, named: Iterator[tuple[str, Message]]
) -> Iterator[DatasetProblem]:
    """Yield warnings about messages, each with its name.

    ``holder`` has their tools; None where the line holds no call.
    """
    characters = _may_be_odd(line)
    if not characters and holder is None:
        return
    messages = list(named)
    if characters:
        yield from _odd_characters(messages)
    if holder is not None:
        yield from odd_calls(holder, messages)


def _may_be_odd(line: bytes) -> bool:
    """Return whether the row of this line may hold odd characters; rarely."""
    not_ascii = not line.isascii() and b"\xef\xbf\xbd" in line
    escaped = b"\\" in line and _ODD_ESCAPE.search(line) is not None
    return not_ascii or escaped or b"\x7f" in line


def _odd_characters(named: Iterable[tuple[str, Message]]) -> Iterator[DatasetProblem]:
    """Yield a warning about the first text with damaged characters."""
    for name, message in named:
        for text in _texts(message):
            if match := _CONTROL.search(text):
                code_point = f"U+{ord(match.group()):04X}"
                reason = f"{name} holds the control character {code_point}; is it meant?"
                yield DatasetProblem("control_character", reason)
                return
            if "\ufffd" in text:
                reason = f"{name} holds U+FFFD, which stands for text lost in a conversion"
                yield DatasetProblem("replacement_character", reason)
                return


def _check_message(message: object) -> DatasetProblem | None:
    if not isinstance(message, dict):
        return DatasetProblem("data_type", "a message must be a JSON object")
    for check in _MESSAGE_CHECKS:
        if problem := check(message):
            return problem
    return None


def _check_keys(message: dict[str, Any]) -> DatasetProblem | None:
    calls = message.get("tool_calls") or message.get("function_call")
    if "role" not in message or ("content" not in message and not calls):
        return DatasetProblem("message_missing_key", "`role` and `content` are needed")
    if not message.keys() <= _MESSAGE_KEYS:
        unknown = min(message.keys() - _MESSAGE_KEYS)
        return DatasetProblem("message_unrecognized_key", f"{_shorten(unknown)} is not a known key")
    return None


def _check_role(message: dict[str, Any]) -> DatasetProblem | None:
    role = message["role"]
    if role in ROLES:
        return None
    suggestion = _ROLE_ALIASES.get(role.lower()) if isinstance(role, str) else None
    remedy = f"write {suggestion!r}" if suggestion else f"use one of {', '.join(ROLES)}"
    return DatasetProblem("unrecognized_role", f"role {_shorten(role)} is not known: {remedy}")


def _check_members(message: dict[str, Any]) -> DatasetProblem | None:
    role = message["role"]
    for name, value in message.items():
        if value is None:
            continue
        if name in _TEXTS and not isinstance(value, str):
            return DatasetProblem("data_type", f"`{name}` must be a string")
        if value and name in _ROLE_OF_MEMBER and role != _ROLE_OF_MEMBER[name]:
            owner = _ROLE_OF_MEMBER[name]
            reason = f"`{name}` is for messages of role {owner}, and this is of role {role}"
            return DatasetProblem("misplaced_member", reason)
        if value and name in _NOT_RENDERED:
            reason = f"chat templates do not render `{name}`; {_NOT_RENDERED[name]}"
            return DatasetProblem("not_rendered", reason)
    return None


def _check_weight(message: dict[str, Any]) -> DatasetProblem | None:
    if "weight" not in message:
        return None
    weight = message["weight"]
    if message["role"] != "assistant":
        return DatasetProblem("invalid_weight", "only the assistant's messages have a weight")
    if type(weight) is not int or weight not in (0, 1):
        return DatasetProblem("invalid_weight", f"weight {_shorten(weight)} must be 0 or 1")
    return None


def _check_content(message: dict[str, Any]) -> DatasetProblem | None:
    content = message.get("content")
    if not content and (content is None or content in ("", [])):
        excused = message.get("tool_calls") or message.get("function_call")
        if excused or (content == "" and message["role"] in _MAY_BE_EMPTY):
            return None
        return DatasetProblem("missing_content", "`content` is empty")
    if isinstance(content, str):
        return None
    if not isinstance(content, list):
        return DatasetProblem(
            "missing_content", "`content` must be a string or a list of text parts"
        )
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text":
            return DatasetProblem(
                "unsupported_content_part", "only parts of type text can be trained on"
            )
        if not isinstance(part.get("text"), str):
            return DatasetProblem("missing_content", "a text part needs a string `text`")
    return None


_MESSAGE_CHECKS: tuple[Callable[[dict[str, Any]], DatasetProblem | None], ...] = (
    _check_keys,
    _check_role,
    _check_members,
    _check_weight,
    check_calls,
    _check_content,
)


def _texts(message: Message) -> tuple[str, ...]:
    """Return the texts of a message: content and reasoning."""
    content, reasoning = message.get("content"), message.get("reasoning_content") or ""
    if isinstance(content, str):
        return (content, reasoning)
    return (*(part["text"] for part in content or ()), reasoning)


def _shorten(value: object) -> str:
    """Return a value for an error message: short, plain ASCII, never a whole tree."""
    if isinstance(value, dict | list):
        return f"of type {type(value).__name__}"
    return f"{value!a:.40}"
