"""Rows of other programs' files become ours: a chat, a preference or a ranking each.

Each member of a row is carried over or named as dropped. A row that cannot be ours, or whose
meaning would be inverted, is left out, and says why in a few words; the same words for the same
reason, so that they can be counted.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from rekindle.cli.import_members import Json, LeftOut, Members, tools_of
from rekindle.cli.import_turns import Messages, from_messages, from_turns, plain

_MOST_ANSWERS = 16  # that the service takes
_SCORES = (  # of the chosen and of the rejected answer, as programs name them
    ("score_chosen", "score_rejected"),
    ("chosen_score", "rejected_score"),
    ("chosen_rating", "rejected_rating"),
    ("chosen-rating", "rejected-rating"),
    ("chosen_reward", "rejected_reward"),
)


class Format(StrEnum):
    """Formats of other programs."""

    ALPACA = "alpaca"
    SHAREGPT = "sharegpt"
    PROMPT_COMPLETION = "prompt-completion"
    PREFERENCE = "preference"
    RANKED = "ranked"


class Converted(NamedTuple):
    """A row of ours, and the members of theirs that it does not have."""

    row: Json
    dropped: frozenset[str]


def format_of(row: Mapping[str, Any]) -> Format | None:
    """Detect the format by the members of a row; None for an unknown one."""
    marks = {
        Format.RANKED: ("candidates",),
        Format.PREFERENCE: ("chosen", "rejected"),
        Format.SHAREGPT: ("conversations",),
        Format.ALPACA: ("instruction", "output"),
        Format.PROMPT_COMPLETION: ("prompt", "completion"),
    }
    return next((kind for kind, names in marks.items() if row.keys() >= set(names)), None)


def convert(row: Mapping[str, Any], kind: Format) -> Converted:
    """The row as the service takes it; raises LeftOut."""
    members, dropped = Members(row), set[str]()
    found = _CONVERSIONS[kind](members, dropped)
    return Converted(found, frozenset(dropped | {*members.unread()}))


def _alpaca(row: Members, dropped: set[str]) -> Json:
    """Instruction, a line feed and the input, if there is one, are what the user says."""
    told = row.text("instruction")
    more = row.read("input")
    if isinstance(more, str) and more.strip():
        told = f"{told}\n{more}"
    said = [plain("user", told), plain("assistant", row.text("output"))]
    return _chat(row, _system(row) + _history(row) + said)


def _history(row: Members) -> Messages:
    """Earlier rounds of question and answer, which are read and not learnt."""
    messages: Messages = []
    for turn in row.read("history") or ():
        if not (
            isinstance(turn, list) and len(turn) == 2 and all(isinstance(t, str) for t in turn)
        ):
            raise LeftOut("`history` is no list of pairs of texts")
        messages += [plain("user", turn[0]), plain("assistant", turn[1]) | {"weight": 0}]
    return messages


def _sharegpt(row: Members, dropped: set[str]) -> Json:
    messages = from_turns(row.read("conversations"), dropped)
    system = _system(row)
    if system and messages[0]["role"] == "system":
        if messages[0]["content"] != system[0]["content"]:
            raise LeftOut("`system` and the first turn differ in the system message")
        system = []
    return _chat(row, system + messages)


def _prompt_completion(row: Members, dropped: set[str]) -> Json:
    if row.read("label") is False:  # of KTO
        raise LeftOut("its `label` is false: the completion is one to be avoided")
    said = _said(row, "prompt", "user", dropped) + _said(row, "completion", "assistant", dropped)
    return _chat(row, _system(row) + said)


def _preference(row: Members, dropped: set[str]) -> Json:
    """Convert a pair; where both answers repeat the prompt as whole chats, that is the prompt."""
    _require_order(row)
    chosen, rejected = (_said(row, n, "assistant", dropped) for n in ("chosen", "rejected"))
    begin = _common(chosen, rejected)
    prompt = chosen[:begin] or _said(row, "prompt", "user", dropped)
    row.read("prompt")  # repeated in the answers
    preferred, other = chosen[begin:], rejected[begin:]
    if not preferred or not other:
        raise LeftOut("both answers are the same")
    return {
        "input": _chat(row, _system(row) + prompt),
        "preferred_output": preferred,
        "non_preferred_output": other,
    }


def _require_order(row: Members) -> None:
    """Scores and labels must not say that the rejected answer is the better one."""
    for names in _SCORES:
        chosen, rejected = (row.read(name) for name in names)
        if _is_number(chosen) and _is_number(rejected) and chosen <= rejected:
            raise LeftOut(f"`{names[0]}` is not above `{names[1]}`: is the order inverted?")
    label = row.read("label")
    if label is not None and label not in ("chosen", 1, True):
        raise LeftOut(f"`label` is {label!r:.20}: which answer is the better one?")


def _ranked(row: Members, dropped: set[str]) -> Json:
    """The lowest rank is the best."""
    candidates = row.read("candidates")
    if not isinstance(candidates, list) or not 2 <= len(candidates) <= _MOST_ANSWERS:
        raise LeftOut(f"`candidates` is no list of 2 to {_MOST_ANSWERS}")
    ranked = sorted((_candidate(c, dropped) for c in candidates), key=lambda c: c[0])
    if len({rank for rank, _, _ in ranked}) < len(ranked):
        raise LeftOut("two candidates have the same rank")
    scores = [score for _, score, _ in ranked if score is not None]
    if len(scores) == len(ranked) and scores != sorted(scores, reverse=True):
        raise LeftOut("`rank` and `score` of the candidates differ in which is better")
    return {
        "input": _chat(row, _system(row) + _said(row, "prompt", "user", dropped)),
        "ranked_outputs": [[plain("assistant", text)] for _, _, text in ranked],
    }


def _candidate(given: object, dropped: set[str]) -> tuple[float, float | None, str]:
    """Rank, score and text."""
    members = Members(given if isinstance(given, dict) else {}, "candidates[].")
    rank, score = members.read("rank"), members.read("score")
    if not _is_number(rank):
        raise LeftOut("a candidate has no number `rank`")
    text = members.text("content")
    dropped.update(members.unread())
    return rank, score if _is_number(score) else None, text


_CONVERSIONS: dict[Format, Callable[[Members, set[str]], Json]] = {
    Format.ALPACA: _alpaca,
    Format.SHAREGPT: _sharegpt,
    Format.PROMPT_COMPLETION: _prompt_completion,
    Format.PREFERENCE: _preference,
    Format.RANKED: _ranked,
}


def _chat(row: Members, messages: Messages) -> Json:
    tools = tools_of(row)
    return {"messages": messages, "tools": tools} if tools else {"messages": messages}


def _said(row: Members, name: str, role: str, dropped: set[str]) -> Messages:
    """A text is one message of this role; a list is messages already."""
    given = row.read(name)
    if not isinstance(given, list):
        return [plain(role, row.text(name))]
    return from_messages(given, name, dropped)


def _system(row: Members) -> Messages:
    told = row.read("system")
    return [plain("system", told)] if isinstance(told, str) and told.strip() else []


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _common(one: Messages, other: Messages) -> int:
    """Count the messages that both begin with."""
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
