"""Rows as a training run would read them: what is shown of each kind of row."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from rendering.preview import ANSWER_BYTES, MOST_EXAMPLES, SECONDS, preview_rows
from rendering.task import Task
from rendering.tokenizer import Tokenizer, UnusableTokenizer
from tests.unit.datasets.test_preflight import (
    FOUND,
    GOOD,
    HALF,
    LABELS,
    PAIRS,
    PROMPTS,
    REWARD,
    pair,
)
from tests.unit.families import template
from tests.unit.rendering.test_families import TWO, answer, user
from tests.unit.trainer.model.tiny_tokenizer import tiny_tokenizer
from trainer.tiny import CHAT_TEMPLATE

Json = dict[str, Any]
TASK = Task(
    folder="",
    method="supervised",
    has_answers=False,
    max_seq_len=512,
    room=512,
    date="2026-02-03",
    most_rows=20,
)


def preview_of(*rows: Json | str, task: Task = TASK, family: str = "") -> Json:
    """Return the preview of a file with these rows."""
    lines = [(row if isinstance(row, str) else json.dumps(row)).encode() for row in rows]
    text = template(family) if family else CHAT_TEMPLATE
    return preview_rows(
        tiny_tokenizer(text), replace(task, most_rows=20), iter(enumerate(lines, 1))
    )


def only(row: Json | str, task: Task = TASK, family: str = "") -> Json:
    (preview_row,) = preview_of(row, task=task, family=family)["rows"]
    return dict(preview_row)


def texts(example: Json) -> list[tuple[str, str]]:
    return [(segment["kind"], segment["text"]) for segment in example["segments"]]


def cut_to(tokens: int, task: Task = TASK) -> Task:
    return replace(task, max_seq_len=tokens, room=tokens)


def test_what_the_assistant_says_is_trained() -> None:
    (example,) = only(GOOD)["examples"]

    assert example["part"] == "chat"
    assert texts(example) == [
        ("context", "<|bos|><|user|>2+2?<|end|><|assistant|>"),
        ("trained", "4.<|end|>"),
    ]
    assert (example["tokens"], example["kept_tokens"], example["trained_tokens"]) == (11, 11, 3)


def test_the_first_token_of_all_is_never_a_target() -> None:
    """Nothing comes before it that the model could tell it from."""
    text = "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}"
    line = json.dumps({"messages": [answer("abc")]}).encode()
    preview = preview_rows(tiny_tokenizer(text), TASK, iter([(1, line)]))
    (example,) = preview["rows"][0]["examples"]

    assert texts(example) == [("context", "a"), ("trained", "bc")]
    assert example["trained_tokens"] == 2


def test_each_answer_is_an_example_where_the_template_rewrites_earlier_ones() -> None:
    preview = preview_of(GOOD, TWO, family="qwen3")

    assert preview["splits_answers"]
    assert [len(row["examples"]) for row in preview["rows"]] == [1, 2]
    assert {e["part"] for row in preview["rows"] for e in row["examples"]} == {"answer"}
    assert all(e["trained_tokens"] for row in preview["rows"] for e in row["examples"])


@pytest.mark.parametrize("task", [PAIRS, REWARD])
def test_both_answers_of_a_pair_are_shown(task: Task) -> None:
    examples = only(pair("4.", "5."), task)["examples"]

    assert [e["part"] for e in examples] == ["preferred", "non_preferred"]
    assert [texts(e)[-1] for e in examples] == [("trained", "4.<|end|>"), ("trained", "5.<|end|>")]


def test_the_answers_of_a_ranking_are_shown_as_far_as_there_is_room() -> None:
    row = {"input": {"messages": [user("?")]}, "ranked_outputs": [[answer(f"{n}")] for n in "abc"]}
    many = row | {"ranked_outputs": [[answer(f"a{n}")] for n in range(MOST_EXAMPLES + 5)]}

    assert [e["part"] for e in only(row, REWARD)["examples"]] == ["ranked"] * 3
    assert only(many, REWARD)["examples_omitted"] == 5
    assert len(only(many, REWARD)["examples"]) == MOST_EXAMPLES


def test_a_prompt_ends_where_the_model_answers_and_nothing_is_trained() -> None:
    (example,) = only({"messages": [user("2+2?")]}, PROMPTS)["examples"]

    assert example["part"] == "prompt"
    assert texts(example) == [("context", "<|bos|><|user|>2+2?<|end|><|assistant|>")]
    assert example["trained_tokens"] == 0


def test_a_text_to_classify_is_shown_with_its_label() -> None:
    row = only({"text": "fine", "label": "caf\u00e9"}, LABELS)
    (example,) = row["examples"]

    assert (example["part"], example["label"]) == ("labelled", "caf\u00e9")
    assert texts(example) == [("context", "fine")]
    assert row["problems"] == []


@pytest.mark.parametrize("room", range(7, 15))
def test_a_character_is_trained_only_if_all_its_tokens_are_kept(room: int) -> None:
    """Four tokens of a byte each make up the character."""
    row = {"messages": [user(""), answer("a\U0001d54fb")]}
    (example,) = only(row, cut_to(room))["examples"]

    shown_text = "".join(text for kind, text in texts(example) if kind != "cut")
    expected = "<|bos|><|user|><|end|><|assistant|>a\U0001d54fb<|end|>"
    assert "".join(text for _, text in texts(example)) == expected
    assert ("\U0001d54f" in shown_text) == (room >= 9)
    assert example["trained_tokens"] == min(room, 11) - 4
    assert example["kept_tokens"] == min(room, 11)


@pytest.mark.parametrize("case", FOUND)
def test_problems_are_those_that_the_check_of_the_file_names(case: str) -> None:
    row, task, family, code, is_error = FOUND[case]
    preview_row = only(row, task, family)

    problems = {problem["code"]: problem for problem in preview_row["problems"]}
    assert problems[code]["is_error"] == is_error
    assert bool(preview_row["examples"]) == (code not in ("template_refuses", "unreadable_row"))


def test_a_bad_row_leaves_its_neighbours_and_is_named_by_its_line() -> None:
    rows = preview_of(GOOD, HALF, "{", GOOD)["rows"]

    assert [row["line"] for row in rows] == [1, 2, 3, 4]
    assert [bool(row["examples"]) for row in rows] == [True, False, False, True]
    json.dumps(rows, ensure_ascii=False).encode()  # no half of a character is left


def test_a_model_without_a_template_is_the_models_fault_and_not_the_rows() -> None:
    tokenizer = tiny_tokenizer()
    bare = Tokenizer(tokenizer.backend, tokenizer.special_tokens, {})

    with pytest.raises(UnusableTokenizer, match="no chat template"):
        preview_rows(bare, TASK, iter([(1, json.dumps(GOOD).encode())]))


def test_rows_are_shown_from_a_line_on_and_the_last_line_is_told() -> None:
    lines_read = []

    def lines() -> Iterator[tuple[int, bytes]]:
        for number in range(1, 1000):
            lines_read.append(number)
            yield number, json.dumps(GOOD).encode()

    preview = preview_rows(tiny_tokenizer(), replace(TASK, first_line=7, most_rows=2), lines())

    assert [row["line"] for row in preview["rows"]] == [7, 8]
    assert preview["next_line"] == 9
    assert lines_read[-1] == 9

    beyond = preview_of(GOOD, GOOD, task=replace(TASK, first_line=3))
    assert (beyond["rows"], beyond["last_line"], beyond["next_line"]) == ([], 2, None)


def test_an_answer_is_bounded_whatever_the_rows_hold() -> None:
    """Control characters take six bytes each in JSON."""
    long = {"messages": [user("\x01" * 30_000), answer("\x02" * 30_000)]}
    preview = preview_of(*[long] * 20, task=cut_to(100_000))

    assert len(json.dumps(preview["rows"], ensure_ascii=False)) <= ANSWER_BYTES
    assert 1 <= len(preview["rows"]) < 20
    assert preview["next_line"] == len(preview["rows"]) + 1


def test_no_row_is_begun_once_time_is_up() -> None:
    times = iter([0.0, 1.0, SECONDS + 1, SECONDS + 2])
    lines = [(n, json.dumps(GOOD).encode()) for n in (1, 2, 3, 4)]
    preview = preview_rows(tiny_tokenizer(), TASK, iter(lines), lambda: next(times))

    assert (len(preview["rows"]), preview["next_line"]) == (2, 3)
