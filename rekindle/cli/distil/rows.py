"""Make training rows from the usable candidates of a prompt."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from rekindle.cli.distil.prompts import TeacherPrompt, UnusablePrompt, is_encodable
from rekindle.cli.distil.tally import DistilTally
from rekindle.cli.distil.teacher_messages import TeacherReply

Json = dict[str, Any]
Graded = tuple[str, float | None]  # a candidate, and its grade if it has one
_COMPLETE_REASONS = ("stop", "")  # finish reasons of complete answers; some servers send none


class RowKind(StrEnum):
    """Kind of rows to write: chats, pairs, or rankings."""

    SFT = "sft"
    PREFERENCE = "preference"
    RANKING = "ranking"


def usable_answers(replies: Sequence[TeacherReply | str], tally: DistilTally) -> list[str]:
    """Return the distinct complete answers in order; a str in a reply's place is a refusal."""
    answers: list[str] = []
    for reply in replies:
        if reason := _rejection_reason(reply, answers):
            tally.drop(reason)
        elif isinstance(reply, TeacherReply):
            answers.append(reply.text)
    return answers


def _rejection_reason(reply: TeacherReply | str, before: list[str]) -> str:
    if isinstance(reply, str):
        return f"the teacher refused: {reply}"
    if reply.ended not in _COMPLETE_REASONS:
        return "cut off at --max-tokens" if reply.ended == "length" else f"ended by {reply.ended}"
    if not reply.text.strip():
        return "empty"
    if not is_encodable(reply.text):
        return "it holds half of a surrogate pair"
    return "duplicate of an earlier one" if reply.text in before else ""


def build_rows(
    kind: RowKind, prompt: TeacherPrompt, candidates: Sequence[Graded], *, exact: bool
) -> list[Json]:
    """Return the prompt's rows; raise UnusablePrompt if its candidates give none.

    ``exact``: grades are 1 for a right answer and 0 for a wrong one.
    """
    if not candidates:
        raise UnusablePrompt("no candidate is usable")
    if kind is RowKind.SFT:
        return [
            {"messages": prompt.messages + _answer_message(text)}
            for text in _best_answers(candidates)
        ]
    best = _rank_answers(candidates, exact=exact)
    row: Json = {"input": {"messages": prompt.messages}}
    if kind is RowKind.RANKING:
        return [row | {"ranked_outputs": [_answer_message(text) for text in best]}]
    pair = {
        "preferred_output": _answer_message(best[0]),
        "non_preferred_output": _answer_message(best[-1]),
    }
    return [row | pair]


def _best_answers(candidates: Sequence[Graded]) -> list[str]:
    """Return the candidates with the highest grade above 0, or all if none is graded."""
    if all(grade is None for _, grade in candidates):
        return [text for text, _ in candidates]
    highest = max(grade for _, grade in candidates if grade is not None)
    if highest <= 0:
        raise UnusablePrompt("no candidate is correct")
    return [text for text, grade in candidates if grade == highest]


def _rank_answers(candidates: Sequence[Graded], *, exact: bool) -> list[str]:
    """Return one candidate per grade, best first; equal grades are no preference."""
    first: dict[float, str] = {}
    for text, grade in candidates:
        if grade is not None:
            first.setdefault(grade, text)
    if len(candidates) < 2:
        raise UnusablePrompt("only one candidate is usable")
    if len(first) < 2:
        (grade,) = first or (None,)
        verdict = "correct" if grade else "wrong"
        raise UnusablePrompt(f"all candidates are {verdict if exact else 'graded equally'}")
    return [first[grade] for grade in sorted(first, reverse=True)]


def _answer_message(text: str) -> list[Json]:
    return [{"role": "assistant", "content": text}]
