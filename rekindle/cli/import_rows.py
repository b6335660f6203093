"""Rows of other programs' files become ours: a chat, a preference or a ranking each.

A row that cannot is left out, and says in a few words why; the same words for the same reason, so
that they can be counted.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

Json = dict[str, Any]
Messages = list[Json]

_ROLES = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "assistant": "assistant",
    "bot": "assistant",
    "model": "assistant",
}
_MOST_ANSWERS = 16  # that the service takes


class Format(StrEnum):
    """Whose rows they are."""

    ALPACA = "alpaca"
    SHAREGPT = "sharegpt"
    PROMPT_COMPLETION = "prompt-completion"
    PREFERENCE = "preference"
    RANKED = "ranked"


class LeftOut(Exception):
    """Why a row cannot be one of ours."""


def format_of(row: Mapping[str, Any]) -> Format | None:
    """By the members that it has; None for one that nobody knows."""
    marks = {
        Format.RANKED: ("candidates",),
        Format.PREFERENCE: ("chosen", "rejected"),
        Format.SHAREGPT: ("conversations",),
        Format.ALPACA: ("instruction", "output"),
        Format.PROMPT_COMPLETION: ("prompt", "completion"),
    }
    return next((kind for kind, names in marks.items() if row.keys() >= set(names)), None)


def convert(row: Mapping[str, Any], kind: Format) -> Json:
    """The row as the service takes it; raises LeftOut."""
    return _CONVERSIONS[kind](row)


def _alpaca(row: Mapping[str, Any]) -> Json:
    """Instruction, a line feed and the input, if there is one, are what the user says."""
    told = _text(row, "instruction")
    more = row.get("input")
    if isinstance(more, str) and more.strip():
        told = f"{told}\n{more}"
    said = [_message("user", told), _message("assistant", _text(row, "output"))]
    return {"messages": _system(row) + said}


def _sharegpt(row: Mapping[str, Any]) -> Json:
    """What comes after the last answer teaches nothing, and is cut off."""
    turns = row.get("conversations")
    if not isinstance(turns, list):
        raise LeftOut("`conversations` is no list")
    messages = _system(row) + [_turn(turn) for turn in turns]
    while messages and messages[-1]["role"] != "assistant":
        messages.pop()
    if not messages:
        raise LeftOut("no message is the assistant's")
    return {"messages": messages}


def _prompt_completion(row: Mapping[str, Any]) -> Json:
    return {"messages": _system(row) + _prompt(row) + _answer(row, "completion")}


def _preference(row: Mapping[str, Any]) -> Json:
    """Where both answers repeat the prompt, as whole chats, that is the prompt."""
    chosen, rejected = _answer(row, "chosen"), _answer(row, "rejected")
    begin = _common(chosen, rejected)
    prompt = chosen[:begin] or _prompt(row)
    preferred, other = chosen[begin:], rejected[begin:]
    if not preferred or not other:
        raise LeftOut("both answers are the same")
    return {
        "input": {"messages": _system(row) + prompt},
        "preferred_output": preferred,
        "non_preferred_output": other,
    }


def _ranked(row: Mapping[str, Any]) -> Json:
    """The lowest rank is the best."""
    candidates = row.get("candidates")
    if not isinstance(candidates, list) or not 2 <= len(candidates) <= _MOST_ANSWERS:
        raise LeftOut(f"`candidates` is no list of 2 to {_MOST_ANSWERS}")
    ranked = sorted(((_rank(c), _text(c, "content")) for c in candidates), key=lambda r: r[0])
    if len({rank for rank, _ in ranked}) < len(ranked):
        raise LeftOut("two candidates have the same rank")
    return {
        "input": {"messages": _system(row) + _prompt(row)},
        "ranked_outputs": [[_message("assistant", text)] for _, text in ranked],
    }


_CONVERSIONS: dict[Format, Callable[[Mapping[str, Any]], Json]] = {
    Format.ALPACA: _alpaca,
    Format.SHAREGPT: _sharegpt,
    Format.PROMPT_COMPLETION: _prompt_completion,
    Format.PREFERENCE: _preference,
    Format.RANKED: _ranked,
}


def _turn(turn: object) -> Json:
    if not isinstance(turn, dict):
        raise LeftOut("a turn of `conversations` is no object")
    said_by = turn.get("from")
    role = _ROLES.get(said_by.lower()) if isinstance(said_by, str) else None
    if role is None:
        raise LeftOut(f"a turn is from {said_by!r:.40}, which is no role that is known")
    return _message(role, _text(turn, "value"))


def _rank(candidate: object) -> float:
    rank = candidate.get("rank") if isinstance(candidate, dict) else None
    if isinstance(rank, bool) or not isinstance(rank, int | float):
        raise LeftOut("a candidate has no number `rank`")
    return rank


def _prompt(row: Mapping[str, Any]) -> Messages:
    return _said(row, "prompt", "user")


def _answer(row: Mapping[str, Any], name: str) -> Messages:
    return _said(row, name, "assistant")


def _said(row: Mapping[str, Any], name: str, role: str) -> Messages:
    """A text is one message of this role; a list is messages already."""
    given = row.get(name)
    if not isinstance(given, list):
        return [_message(role, _text(row, name))]
    if not given or not all(isinstance(m, dict) and "role" in m for m in given):
        raise LeftOut(f"`{name}` is no list of messages")
    return given


def _system(row: Mapping[str, Any]) -> Messages:
    told = row.get("system")
    return [_message("system", told)] if isinstance(told, str) and told.strip() else []


def _text(row: Mapping[str, Any], name: str) -> str:
    text = row.get(name)
    if not isinstance(text, str):
        raise LeftOut(f"`{name}` is no text")
    if not text.strip():
        raise LeftOut(f"`{name}` is empty")
    return text


def _message(role: str, content: str) -> Json:
    return {"role": role, "content": content}


def _common(one: Messages, other: Messages) -> int:
    """How many messages both begin with."""
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
