"""Check one row of rankings, a format of ours: a prompt and its answers, best first."""

from collections.abc import Iterator
from itertools import chain, pairwise
from typing import Any, Final

from contract.choices import Format
from service.domain.datasets import message
from service.domain.datasets.json_line import DatasetProblem
from service.domain.datasets.message import Message
from service.domain.datasets.preference_line import (
    NON_PREFERRED,
    PREFERRED,
    check_beside,
    check_output,
    prompt_of,
)
from service.domain.datasets.row import DatasetRow
from service.domain.datasets.tools import check_style, may_call

RANKED: Final = "ranked_outputs"
MOST_ANSWERS: Final = 16  # each is a sequence of its own in a micro-step

_SEND = f"`{RANKED}` must be a list of 2 to {MOST_ANSWERS} answers, best first, each a list of "


def is_ranking(row: dict[str, Any]) -> bool:
    """Return whether the row is meant as a ranking, valid or not."""
    return "messages" not in row and row.get(RANKED) is not None


def check(row: dict[str, Any], line: bytes) -> DatasetRow | DatasetProblem:
    """Return what the row holds, or the first problem."""
    prompt = prompt_of(row.get("input"))
    if isinstance(prompt, DatasetProblem):
        return prompt
    if problem := check_beside(row) or _check_outputs(row):
        return problem
    answers: dict[str, list[Message]] = {
        f"{RANKED}, answer {number}": answer for number, answer in enumerate(row[RANKED], 1)
    }
    sizes = []
    for name, messages in {"input": prompt, **answers}.items():
        size = message.check_all(messages, f"{name}, message")
        if isinstance(size, DatasetProblem):
            return size
        sizes.append(size)
    for name in answers:
        if problem := check_output(answers, name):
            return problem
    tools = row["input"] if may_call(line) else None
    if tools and (problem := check_style(tools, [*prompt, *chain(*answers.values())])):
        return problem
    prompt_size, *answer_sizes = sizes
    notes = tuple(_notes(line, tools, prompt, answers))
    characters = len(answer_sizes) * prompt_size + sum(answer_sizes)
    longest = prompt_size + max(answer_sizes)
    return DatasetRow(Format.RANKING, characters, longest, notes, answers=len(answer_sizes))


def _check_outputs(row: dict[str, Any]) -> DatasetProblem | None:
    for name in (*PREFERRED, *NON_PREFERRED):
        if row.get(name) is not None:
            reason = f"it has `{RANKED}` and `{name}`: leave one out"
            return DatasetProblem("mixed_formats", reason)
    ranked = row.get(RANKED)
    fine = isinstance(ranked, list) and all(isinstance(a, list) and a for a in ranked)
    if not fine or not 2 <= len(row[RANKED]) <= MOST_ANSWERS:
        return DatasetProblem("missing_output", f"{_SEND}at least one message")
    return None


def _notes(
    line: bytes,
    tools: dict[str, Any] | None,
    prompt: list[Message],
    answers: dict[str, list[Message]],
) -> Iterator[DatasetProblem]:
    """Yield warnings, each once: the prompt is part of every sequence."""
    sequences = ([m["role"] for m in (*prompt, *answer)] for answer in answers.values())
    yield from {odd.code: odd for roles in sequences for odd in message.odd_roles(roles)}.values()
    for (_, better), (name, worse) in pairwise(answers.items()):
        if better == worse:
            yield DatasetProblem("equal_outputs", f"{name} is the same as the one before it")
            break
    parts = {"input": prompt, **answers}
    yield from message.odd_messages(line, tools, message.with_names(parts))
