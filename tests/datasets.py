"""Training files of every format with forty rows each, and a grader."""

import json
from typing import Any

GRADER = {
    "type": "string_check",
    "name": "right",
    "input": "{{sample.output_text}}",
    "reference": "{{item.answer}}",
    "operation": "eq",
}
QUESTION = {"messages": [{"role": "user", "content": "What is two and two?"}]}
PAIR = {
    "input": QUESTION,
    "preferred_output": [{"role": "assistant", "content": "Four."}],
    "non_preferred_output": [{"role": "assistant", "content": "Five."}],
}
PROMPT = QUESTION | {"answer": "four"}
REWARD = {"type": "reward", "reward": {"hyperparameters": {"n_epochs": 2}}}


def jsonl(rows: list[dict[str, Any]]) -> bytes:
    """Return a JSONL file of these rows."""
    return "\n".join(map(json.dumps, rows)).encode()


PAIRS = jsonl([PAIR] * 40)


def prompts(*last_rows: dict[str, Any]) -> bytes:
    """Return prompts with the answer for the grader; the last rows are ``last_rows``."""
    return jsonl([*[PROMPT] * (40 - len(last_rows)), *last_rows])


def rankings(answers: int) -> bytes:
    """Return rankings of two answers; the last one ranks ``answers`` answers."""
    replies = [[{"role": "assistant", "content": f"{n}."}] for n in range(4, 4 + answers)]
    rows = [{"input": QUESTION, "ranked_outputs": replies[:2]}] * 39
    return jsonl([*rows, rows[0] | {"ranked_outputs": replies}])


def labelled(*labels: str) -> bytes:
    """Return texts with these labels in turn."""
    return jsonl(
        [{"text": f"This is text {n}.", "label": labels[n % len(labels)]} for n in range(40)]
    )
