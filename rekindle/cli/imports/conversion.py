"""Convert rows of other programs to chats, preferences or rankings.

Each member of a row is converted or reported as dropped. A row that cannot be converted, or whose
meaning would be inverted, is left out with a reason; equal reasons have equal texts, so that they
can be counted.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from rekindle.cli.imports.members import (
    Json,
    LeftOut,
    Members,
    check_values,
    is_there,
    number_of,
    require_learnt,
    tools_of,
)
from rekindle.cli.imports.messages import Messages, from_messages, from_turns, plain, require_answer
from rekindle.cli.imports.ratings import require_good, require_order, require_ranks

_MOST_ANSWERS = 16  # the service's limit
_SYSTEM = ("system", "system_prompt", "system_message")


class RowFormat(StrEnum):
    """Row formats of other programs."""

    ALPACA = "alpaca"
    SHAREGPT = "sharegpt"
    PROMPT_COMPLETION = "prompt-completion"
    PREFERENCE = "preference"
    RANKED = "ranked"


class Converted(NamedTuple):
    """A converted row, and the members of the original that it lacks."""

    row: Json
    dropped: frozenset[str]


def format_of(row: Mapping[str, Any]) -> RowFormat | None:
    """Detect the format by the members of a row; None for an unknown one."""
    marks = {
        RowFormat.RANKED: ("candidates",),
        RowFormat.PREFERENCE: ("chosen", "rejected"),
        RowFormat.SHAREGPT: ("conversations",),
        RowFormat.ALPACA: ("instruction", "output"),
        RowFormat.PROMPT_COMPLETION: ("prompt", "completion"),
    }
    return next((kind for kind, names in marks.items() if row.keys() >= set(names)), None)


def convert(row: Mapping[str, Any], kind: RowFormat) -> Converted:
    """Convert a row to the service's format; raise LeftOut."""
    members, dropped = Members(row), set[str]()
    require_learnt(members)
    found = _CONVERSIONS[kind](members, dropped)
    check_values(found)
    return Converted(found, frozenset(dropped | {*members.unread()}))


def _alpaca(row: Members, dropped: set[str]) -> Json:
    require_good(row)
    messages = [*_history(row), plain("user", _task(row)), plain("assistant", row.text("output"))]
    return _chat(row, messages)


def _task(row: Members) -> str:
    """Return the user message: the instruction, and the input on a new line."""
    told, more = row.text("instruction"), row.optional_text("input")
    return f"{told}\n{more}" if more else told


def _history(row: Members) -> Messages:
    """Return earlier rounds, whose answers are not trained."""
    messages: Messages = []
    given = row.read("history")
    if is_there(given) and not isinstance(given, list):
        raise LeftOut("`history` is no list of pairs of texts")
    for turn in given or ():
        if not isinstance(turn, list) or len(turn) != 2 or not all(map(_is_text, turn)):
            raise LeftOut("`history` is no list of pairs of texts")
        messages += [plain("user", turn[0]), plain("assistant", turn[1]) | {"weight": 0}]
    return messages


def _sharegpt(row: Members, dropped: set[str]) -> Json:
    require_good(row)
    return _chat(row, from_turns(row.read("conversations"), dropped))


def _prompt_completion(row: Members, dropped: set[str]) -> Json:
    """Convert a row whose completion is trained, as TRL does."""
    require_good(row)
    prompt = _messages_of(row, "prompt", "user", dropped)
    completion = _messages_of(row, "completion", "assistant", dropped, prompt)
    require_answer(completion)
    earlier = [m | {"weight": 0} if m["role"] == "assistant" else m for m in prompt]
    return _chat(row, earlier + completion)


def _preference(row: Members, dropped: set[str]) -> Json:
    """Convert a pair; where both answers repeat the prompt as whole chats, that is the prompt."""
    require_order(row)
    given = _prompt(row, dropped)
    chosen, rejected = (
        _messages_of(row, name, "assistant", dropped, given) for name in ("chosen", "rejected")
    )
    begin = _common(chosen, rejected)
    prompt = _whole_prompt(given, chosen[:begin])
    outputs = preferred, other = chosen[begin:], rejected[begin:]
    if not preferred or not other:
        raise LeftOut("both answers are the same")
    for output in outputs:
        if any(m["role"] not in ("assistant", "tool") for m in output):
            raise LeftOut("the answers differ in more than what the assistant says")
        require_answer(output)
    return {
        "input": _chat(row, prompt),
        "preferred_output": preferred,
        "non_preferred_output": other,
    }


def _prompt(row: Members, dropped: set[str]) -> Messages:
    """Return the prompt of a preference, whatever its member is called; empty without one."""
    names = [n for n in ("prompt", "conversations", "instruction") if row.peek(n) is not None]
    if not names:
        return []
    if names[0] == "instruction":
        return [*_history(row), plain("user", _task(row))]
    return _messages_of(row, names[0], "user", dropped)


def _whole_prompt(given: Messages, begin: Messages) -> Messages:
    """Return the prompt of a pair whose answers both begin with these messages."""
    if not begin or not given:
        if not given and not begin:
            raise LeftOut("`prompt` is no text")
        return given or begin
    if begin[-len(given) :] == given:  # both answers repeat it
        return begin
    if begin[0]["role"] in ("assistant", "tool"):  # both answers begin alike
        return given + begin
    raise LeftOut("`prompt` is not what both answers begin with")


def _ranked(row: Members, dropped: set[str]) -> Json:
    """Convert a ranking; the lowest rank is the best."""
    candidates = row.read("candidates")
    if not isinstance(candidates, list) or not 2 <= len(candidates) <= _MOST_ANSWERS:
        raise LeftOut(f"`candidates` is no list of 2 to {_MOST_ANSWERS}")
    ranked = sorted(((_rank(c), c) for c in candidates), key=lambda c: c[0])
    if len({rank for rank, _ in ranked}) < len(ranked):
        raise LeftOut("two candidates have the same rank")
    require_ranks(ranked)
    prompt = _messages_of(row, "prompt", "user", dropped)
    return {
        "input": _chat(row, prompt),
        "ranked_outputs": [_candidate(c, prompt, dropped) for _, c in ranked],
    }


def _rank(candidate: object) -> float:
    given = candidate.get("rank") if isinstance(candidate, dict) else None
    rank = None if isinstance(given, str) else number_of(given)
    if rank is None:
        raise LeftOut("a candidate has no number `rank`")
    return rank


def _candidate(given: Json, prompt: Messages, dropped: set[str]) -> Messages:
    as_message = {"role": "assistant"} | {n: v for n, v in given.items() if n != "rank"}
    messages = from_messages(as_message, "candidates", dropped, prompt)
    require_answer(messages)
    return messages


_CONVERSIONS: dict[RowFormat, Callable[[Members, set[str]], Json]] = {
    RowFormat.ALPACA: _alpaca,
    RowFormat.SHAREGPT: _sharegpt,
    RowFormat.PROMPT_COMPLETION: _prompt_completion,
    RowFormat.PREFERENCE: _preference,
    RowFormat.RANKED: _ranked,
}


def _chat(row: Members, messages: Messages) -> Json:
    """Return messages with the row's system message, and the row's tools."""
    told, tools = row.optional_text(*_SYSTEM), tools_of(row)
    there = [m["content"] for m in messages if m["role"] in ("system", "developer")]
    if told and any(content != told for content in there):
        raise LeftOut("`system` and the messages differ in the system message")
    if told and not there:
        messages = [plain("system", told), *messages]
    return {"messages": messages} | ({"tools": tools} if tools else {})


def _messages_of(
    row: Members,
    name: str,
    role: str,
    dropped: set[str],
    before: Messages = [],  # noqa: B006 - never changed
) -> Messages:
    """Return one message of this role for text, or the messages of a list."""
    if isinstance(given := row.read(name), list | dict):
        return from_messages(given, name, dropped, before)
    return [plain(role, row.text(name))]


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _common(one: Messages, other: Messages) -> int:
    """Return how many messages both begin with."""
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
