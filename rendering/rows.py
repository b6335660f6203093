"""Read parsed rows as chats: one per row, or one per answer."""

import json
from collections.abc import Callable
from typing import Any

from rendering.chat import split_answers
from rendering.templates.tool_calls import Json

Reader = Callable[[Any], tuple[Json, ...]]

# OpenAI's names, and those of its older specification.
PREFERRED = ("preferred_output", "preferred_completion")
NON_PREFERRED = ("non_preferred_output", "non_preferred_completion")
RANKED = "ranked_outputs"  # ours


class RowError(ValueError):
    """Why a row does not fit the training method."""


def parse_line(line: bytes) -> Any:  # noqa: ANN401 - any JSON
    """Parse a line of JSONL."""
    try:
        return json.loads(line.rstrip())
    except json.JSONDecodeError as error:
        raise RowError(f"not JSON ({error.msg} at column {error.colno})") from error
    except RecursionError as error:
        raise RowError("not JSON that can be read (nested too deeply)") from error
    except ValueError as error:
        raise RowError(f"not JSON ({error})") from error


def row_reader(method: str, *, has_answers: bool) -> Reader:
    """Return the reader for a training method; ``has_answers``: a row has several answers."""
    if method == "classification":
        return read_labelled
    if method == "reinforcement":
        return read_prompt
    return read_answers if has_answers else read_chat


def read_chat(row: Any) -> tuple[Json, ...]:  # noqa: ANN401
    """Return the row's chat; raise RowError."""
    if not isinstance(row, dict) or not isinstance(row.get("messages"), list):
        raise RowError("needs a list `messages`")
    return (row,)


def read_split_chats(row: Any) -> tuple[Json, ...]:  # noqa: ANN401
    """Return one chat per trained answer."""
    (chat,) = read_chat(row)
    return tuple(split_answers(chat))


def read_prompt(row: Any) -> tuple[Json, ...]:  # noqa: ANN401
    """Return the row's chat, which must end before the assistant's answer."""
    (chat,) = read_chat(row)
    if not chat["messages"] or chat["messages"][-1].get("role") == "assistant":
        raise RowError("needs `messages` that end before the assistant's answer")
    return (chat,)


def read_labelled(row: Any) -> tuple[Json, ...]:  # noqa: ANN401
    """Return the row's text or chat with its label."""
    has_label = isinstance(row, dict) and isinstance(row.get("label"), str)
    if not has_label or not (
        isinstance(row.get("text"), str) or isinstance(row.get("messages"), list)
    ):
        raise RowError("needs a string `label`, and a string `text` or a list `messages`")
    return (row,)


def read_answers(row: Any) -> tuple[Json, ...]:  # noqa: ANN401
    """Return the prompt with each answer, best first; only the answers are trained."""
    input_chat = row.get("input") if isinstance(row, dict) else None
    if not isinstance(input_chat, dict) or not isinstance(input_chat.get("messages"), list):
        raise RowError("needs `input` with a list `messages`")
    messages = [
        m | {"weight": 0} if m["role"] == "assistant" else m for m in input_chat["messages"]
    ]
    return tuple(input_chat | {"messages": messages + answer} for answer in _ranked(row))


def _ranked(row: Json) -> list[list[Json]]:
    ranked = row.get(RANKED)
    if ranked is None:
        return [_answer(row, PREFERRED), _answer(row, NON_PREFERRED)]
    if not isinstance(ranked, list) or not all(isinstance(answer, list) for answer in ranked):
        raise RowError(f"needs a list of lists `{RANKED}`")
    return ranked


def _answer(row: Json, names: tuple[str, ...]) -> list[Json]:
    value = next((row[name] for name in names if name in row), None)
    if not isinstance(value, list):
        raise RowError(f"needs a list `{names[0]}`")
    return value
