"""Check ratings in a row, so that no answer rated bad or worse is trained as good."""

import re
from collections.abc import Iterator
from typing import Any

from rekindle.cli.imports.members import Json, RowMembers, RowSkipped, parse_flag, parse_number

# Members that judge a single answer.
_VERDICT_MEMBERS = ("label", "kto_tag", "desirable", "is_desirable", "accepted")
_BAD = ("bad", "rejected", "undesirable", "unsafe", "dispreferred")
_WINNER_MEMBERS = ("winner", "preferred", "better", "preference", "status")  # of two answers
_NOT_CHOSEN = ("rejected", "tie", "tied", "both", "neither")
_JUDGED = re.compile("score|rating|reward|rank|grade|quality")
_LISTS = ("rating", "ratings", "score", "scores", "reward", "rewards")  # chosen, rejected
_SCORES = ("score", "rating", "reward", "grade", "quality")  # of one answer


def require_good_answer(row: RowMembers) -> None:
    """Raise RowSkipped if the only answer is rated bad, as in rows of KTO."""
    for name in _VERDICT_MEMBERS:
        value = row.peek(name)
        number, flag = parse_number(value), parse_flag(value)
        is_bad = flag == 0 or (number is not None and number <= 0)
        if is_bad or (isinstance(value, str) and value.strip().lower() in _BAD):
            text = "false" if flag == 0 else f"{value!r:.20}"
            raise RowSkipped(f"its `{name}` is {text}: the answer is one to be avoided")
        if flag == 1:
            row.read(name)  # it says what learning the answer means


def require_preference_order(row: RowMembers) -> None:
    """Raise RowSkipped unless scores and labels agree that the chosen answer is better."""
    for names, chosen, rejected in _score_pairs(row):
        if chosen <= rejected:
            raise RowSkipped(f"{names}: is the order inverted?")
    label = row.read("label")
    if label is not None and label not in ("chosen", 1, True):
        raise RowSkipped(f"`label` is {label!r:.20}: which answer is the better one?")
    for name in _WINNER_MEMBERS:
        value = row.peek(name)
        says = value.strip().lower() if isinstance(value, str) else value
        if says in _NOT_CHOSEN or (says and value == row.peek("rejected")):
            raise RowSkipped(f"`{name}` is {value!r:.20}: which answer is the better one?")


def read_score(answer: object) -> float | None:
    """Return the score of an answer object, or of the last message of a list; else None."""
    last: Any = answer[-1] if isinstance(answer, list) and answer else answer
    if not isinstance(last, dict):
        return None
    scores = (parse_number(last.get(name)) for name in _SCORES)
    return next((score for score in scores if score is not None), None)


def _score_pairs(row: RowMembers) -> Iterator[tuple[str, float, float]]:
    """Yield each pair of scores: its name, the chosen answer's and the rejected answer's."""
    for name in row.names():
        rejected_name = name.replace("chosen", "rejected")
        if rejected_name == name or not _JUDGED.search(name):
            continue
        chosen, rejected = parse_number(row.peek(name)), parse_number(row.peek(rejected_name))
        if chosen is not None and rejected is not None:
            is_rank = "rank" in name
            relation, sign = ("below", -1) if is_rank else ("above", 1)
            yield f"`{name}` is not {relation} `{rejected_name}`", sign * chosen, sign * rejected
    for name in _LISTS:
        numbers = (
            [parse_number(n) for n in values] if isinstance(values := row.peek(name), list) else []
        )
        if len(numbers) == 2 and numbers[0] is not None and numbers[1] is not None:
            yield f"`{name}` does not give the first answer more", numbers[0], numbers[1]
    first, second = read_score(row.peek("chosen")), read_score(row.peek("rejected"))
    if first is not None and second is not None:
        yield "the chosen answer's score is not above the rejected one's", first, second


def require_consistent_ranks(candidates: list[tuple[float, Json]]) -> None:
    """Raise RowSkipped if scores contradict ranks; the lowest rank is the best."""
    scores = [read_score(candidate) for _, candidate in candidates]
    known_scores = [score for score in scores if score is not None]
    if len(known_scores) == len(candidates) and known_scores != sorted(known_scores, reverse=True):
        raise RowSkipped("`rank` and `score` of the candidates differ in which is better")
