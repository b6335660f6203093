"""Convert rows of other programs to chats, preferences or rankings.

Each member of a row is converted or reported as dropped. A row that cannot be converted, or whose
meaning would be inverted, is left out with a reason; equal reasons have equal texts, so that they
can be counted.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from rekindle.cli.imports.members import (
    Json,
    RowMembers,
    RowSkipped,
    check_values,
    has_value,
    parse_number,
    read_tools,
    require_trained,
)
from rekindle.cli.imports.messages import (
    Messages,
    convert_messages,
    convert_turns,
    require_answer,
    simple_message,
)
from rekindle.cli.imports.ratings import (
    require_consistent_ranks,
    require_good_answer,
    require_preference_order,
)

_MAX_ANSWERS = 16  # the service's limit
_SYSTEM = ("system", "system_prompt", "system_message")


class RowFormat(StrEnum):
    """Row formats of other programs."""

    ALPACA = "alpaca"
    SHAREGPT = "sharegpt"
    PROMPT_COMPLETION = "prompt-completion"
    PREFERENCE = "preference"
    RANKED = "ranked"


class ConvertedRow(NamedTuple):
    """A converted row, and the members of the original that it lacks."""

    row: Json
    dropped: frozenset[str]


def detect_format(row: Mapping[str, Any]) -> RowFormat | None:
    """Detect the format by the members of a row; None for an unknown one."""
    marks = {
        RowFormat.RANKED: ("candidates",),
        RowFormat.PREFERENCE: ("chosen", "rejected"),
        RowFormat.SHAREGPT: ("conversations",),
        RowFormat.ALPACA: ("instruction", "output"),
        RowFormat.PROMPT_COMPLETION: ("prompt", "completion"),
    }
    return next((kind for kind, names in marks.items() if row.keys() >= set(names)), None)


def convert_row(row: Mapping[str, Any], kind: RowFormat) -> ConvertedRow:
    """Convert a row to the service's format; raise RowSkipped."""
    members, dropped = RowMembers(row), set[str]()
    require_trained(members)
    converted = _CONVERSIONS[kind](members, dropped)
    check_values(converted)
    return ConvertedRow(converted, frozenset(dropped | {*members.unread_names()}))


def _convert_alpaca(row: RowMembers, dropped: set[str]) -> Json:
    require_good_answer(row)
    messages = [
        *_history_messages(row),
        simple_message("user", _user_text(row)),
        simple_message("assistant", row.read_text("output")),
    ]
    return _chat_row(row, messages)


def _user_text(row: RowMembers) -> str:
    """Return the user message: the instruction, and the input on a new line."""
    instruction, input_text = row.read_text("instruction"), row.read_optional_text("input")
    return f"{instruction}\n{input_text}" if input_text else instruction


def _history_messages(row: RowMembers) -> Messages:
    """Return earlier rounds, whose answers are not trained."""
    messages: Messages = []
    history = row.read("history")
    if has_value(history) and not isinstance(history, list):
        raise RowSkipped("`history` is no list of pairs of texts")
    for turn in history or ():
        if not isinstance(turn, list) or len(turn) != 2 or not all(map(_is_text, turn)):
            raise RowSkipped("`history` is no list of pairs of texts")
        messages += [
            simple_message("user", turn[0]),
            simple_message("assistant", turn[1]) | {"weight": 0},
        ]
    return messages


def _convert_sharegpt(row: RowMembers, dropped: set[str]) -> Json:
    require_good_answer(row)
    return _chat_row(row, convert_turns(row.read("conversations"), dropped))


def _convert_prompt_completion(row: RowMembers, dropped: set[str]) -> Json:
    """Convert a row whose completion is trained, as TRL does."""
    require_good_answer(row)
    prompt = _messages_of(row, "prompt", "user", dropped)
    completion = _messages_of(row, "completion", "assistant", dropped, prompt)
    require_answer(completion)
    earlier = [m | {"weight": 0} if m["role"] == "assistant" else m for m in prompt]
    return _chat_row(row, earlier + completion)


def _convert_preference(row: RowMembers, dropped: set[str]) -> Json:
    """Convert a pair; where both answers repeat the prompt as whole chats, that is the prompt."""
    require_preference_order(row)
    own_prompt = _preference_prompt(row, dropped)
    chosen, rejected = (
        _messages_of(row, name, "assistant", dropped, own_prompt) for name in ("chosen", "rejected")
    )
    common = _common_prefix_length(chosen, rejected)
    prompt = _full_prompt(own_prompt, chosen[:common])
    outputs = preferred, non_preferred = chosen[common:], rejected[common:]
    if not preferred or not non_preferred:
        raise RowSkipped("both answers are the same")
    for output in outputs:
        if any(m["role"] not in ("assistant", "tool") for m in output):
            raise RowSkipped("the answers differ in more than what the assistant says")
        require_answer(output)
    return {
        "input": _chat_row(row, prompt),
        "preferred_output": preferred,
        "non_preferred_output": non_preferred,
    }


def _preference_prompt(row: RowMembers, dropped: set[str]) -> Messages:
    """Return the prompt of a preference, whatever its member is called; empty without one."""
    names = [n for n in ("prompt", "conversations", "instruction") if row.peek(n) is not None]
    if not names:
        return []
    if names[0] == "instruction":
        return [*_history_messages(row), simple_message("user", _user_text(row))]
    return _messages_of(row, names[0], "user", dropped)


def _full_prompt(prompt: Messages, common: Messages) -> Messages:
    """Return the prompt of a pair whose answers both begin with these messages."""
    if not common or not prompt:
        if not prompt and not common:
            raise RowSkipped("`prompt` is no text")
        return prompt or common
    if common[-len(prompt) :] == prompt:  # both answers repeat it
        return common
    if common[0]["role"] in ("assistant", "tool"):  # both answers begin alike
        return prompt + common
    raise RowSkipped("`prompt` is not what both answers begin with")


def _convert_ranked(row: RowMembers, dropped: set[str]) -> Json:
    """Convert a ranking; the lowest rank is the best."""
    candidates = row.read("candidates")
    if not isinstance(candidates, list) or not 2 <= len(candidates) <= _MAX_ANSWERS:
        raise RowSkipped(f"`candidates` is no list of 2 to {_MAX_ANSWERS}")
    ranked = sorted(((_parse_rank(c), c) for c in candidates), key=lambda c: c[0])
    if len({rank for rank, _ in ranked}) < len(ranked):
        raise RowSkipped("two candidates have the same rank")
    require_consistent_ranks(ranked)
    prompt = _messages_of(row, "prompt", "user", dropped)
    return {
        "input": _chat_row(row, prompt),
        "ranked_outputs": [_candidate_messages(c, prompt, dropped) for _, c in ranked],
    }


def _parse_rank(candidate: object) -> float:
    value = candidate.get("rank") if isinstance(candidate, dict) else None
    rank = None if isinstance(value, str) else parse_number(value)
    if rank is None:
        raise RowSkipped("a candidate has no number `rank`")
    return rank


def _candidate_messages(candidate: Json, prompt: Messages, dropped: set[str]) -> Messages:
    as_message = {"role": "assistant"} | {n: v for n, v in candidate.items() if n != "rank"}
    messages = convert_messages(as_message, "candidates", dropped, prompt)
    require_answer(messages)
    return messages


_CONVERSIONS: dict[RowFormat, Callable[[RowMembers, set[str]], Json]] = {
    RowFormat.ALPACA: _convert_alpaca,
    RowFormat.SHAREGPT: _convert_sharegpt,
    RowFormat.PROMPT_COMPLETION: _convert_prompt_completion,
    RowFormat.PREFERENCE: _convert_preference,
    RowFormat.RANKED: _convert_ranked,
}


def _chat_row(row: RowMembers, messages: Messages) -> Json:
    """Return messages with the row's system message, and the row's tools."""
    system, tools = row.read_optional_text(*_SYSTEM), read_tools(row)
    contents = [m["content"] for m in messages if m["role"] in ("system", "developer")]
    if system and any(content != system for content in contents):
        raise RowSkipped("`system` and the messages differ in the system message")
    if system and not contents:
        messages = [simple_message("system", system), *messages]
    return {"messages": messages} | ({"tools": tools} if tools else {})


def _messages_of(
    row: RowMembers,
    name: str,
    role: str,
    dropped: set[str],
    earlier: Sequence[Json] = (),
) -> Messages:
    """Return one message of this role for text, or the messages of a list."""
    if isinstance(value := row.read(name), list | dict):
        return convert_messages(value, name, dropped, earlier)
    return [simple_message(role, row.read_text(name))]


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _common_prefix_length(first: Messages, second: Messages) -> int:
    """Return how many messages both begin with."""
    pairs = zip(first, second, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))
