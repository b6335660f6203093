"""Rows of what a teacher has said: which candidates are of use, and what is made of them."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from rekindle.cli.distil.prompts import Prompt, Unfit, is_text
from rekindle.cli.distil.tally import Tally
from rekindle.cli.distil.teacher_messages import Reply

Json = dict[str, Any]
Graded = tuple[str, float | None]  # a candidate, and its grade if it has one
_WHOLE = ("stop", "")  # how an answer ends that is all there; some servers do not say


class Kind(StrEnum):
    """What rows are to be: chats, pairs, or rankings."""

    SFT = "sft"
    PREFERENCE = "preference"
    RANKING = "ranking"


def useful(replies: Sequence[Reply | str], tally: Tally) -> list[str]:
    """The different answers among them, in order; a text in a reply's place is a refusal."""
    found: list[str] = []
    for reply in replies:
        if why := _useless(reply, found):
            tally.drop(why)
        elif isinstance(reply, Reply):
            found.append(reply.text)
    return found


def _useless(reply: Reply | str, before: list[str]) -> str:
    if isinstance(reply, str):
        return f"the teacher refused: {reply}"
    if reply.ended not in _WHOLE:
        return "cut off at --max-tokens" if reply.ended == "length" else f"ended by {reply.ended}"
    if not reply.text.strip():
        return "empty"
    if not is_text(reply.text):
        return "it holds half of a surrogate pair"
    return "the same as one before it" if reply.text in before else ""


def made(kind: Kind, prompt: Prompt, candidates: Sequence[Graded], *, exact: bool) -> list[Json]:
    """The prompt's rows; raises Unfit where its candidates teach nothing.

    ``exact``: grades are 1 for a right answer and 0 for a wrong one.
    """
    if not candidates:
        raise Unfit("none of its candidates is of use")
    if kind is Kind.SFT:
        return [{"messages": prompt.messages + _said(text)} for text in _best(candidates)]
    best = _ranked(candidates, exact=exact)
    row: Json = {"input": {"messages": prompt.messages}}
    if kind is Kind.RANKING:
        return [row | {"ranked_outputs": [_said(text) for text in best]}]
    pair = {"preferred_output": _said(best[0]), "non_preferred_output": _said(best[-1])}
    return [row | pair]


def _best(candidates: Sequence[Graded]) -> list[str]:
    """All of them if nobody grades; else those with the best grade, if it is above 0."""
    if all(grade is None for _, grade in candidates):
        return [text for text, _ in candidates]
    highest = max(grade for _, grade in candidates if grade is not None)
    if highest <= 0:
        raise Unfit("none of its candidates is right")
    return [text for text, grade in candidates if grade == highest]


def _ranked(candidates: Sequence[Graded], *, exact: bool) -> list[str]:
    """Best first, one for each grade: of two that are graded alike neither is the better one."""
    first: dict[float, str] = {}
    for text, grade in candidates:
        if grade is not None:
            first.setdefault(grade, text)
    if len(candidates) < 2:
        raise Unfit("only one of its candidates is of use")
    if len(first) < 2:
        (grade,) = first or (None,)
        alike = "right" if grade else "wrong"
        raise Unfit(f"its candidates are all {alike if exact else 'graded alike'}")
    return [first[grade] for grade in sorted(first, reverse=True)]


def _said(text: str) -> list[Json]:
    return [{"role": "assistant", "content": text}]
