"""What the check of a data file finds, for every method."""

import json
from dataclasses import replace
from typing import Any

import pytest

from rendering.preflight import Preflight
from rendering.report import DataReport
from rendering.sequences import SplitNeeded
from rendering.task import Task
from service.domain.errors import InvalidRequest
from service.domain.training.preflight import mean_padded, refuse_untrainable, warnings
from tests.unit.families import template
from tests.unit.rendering.test_families import ADD, CALLS, THOUGHT, TWO, answer, call, user
from tests.unit.trainer.model.tiny_tokenizer import tiny_tokenizer
from trainer.tiny import CHAT_TEMPLATE

Json = dict[str, Any]
TASK = Task(
    folder="", method="supervised", has_answers=False, max_seq_len=64, room=64, date="2026-02-03"
)
LONG_TASK = replace(TASK, max_seq_len=512, room=512)
PAIRS = replace(TASK, method="dpo", has_answers=True)
REWARD = replace(TASK, method="reward", has_answers=True)
PROMPTS = replace(TASK, method="reinforcement")
LABELS = replace(TASK, method="classification")
GOOD = {"messages": [user("2+2?"), answer("4.")]}
LONG = {"messages": [user("word " * 99), answer("4.")]}
LONG_ANSWER = {"messages": [user("2+2?"), answer("word " * 99)]}
TOO_MUCH_AFTER = {"messages": [user("2+2?"), answer("4."), user("word " * 99)]}


def checked(*rows: Json | str, task: Task = TASK, family: str = "") -> DataReport:
    """Return the report of a file with these rows."""
    text = template(family) if family else CHAT_TEMPLATE
    preflight = Preflight(tiny_tokenizer(text), task)
    lines = [(row if isinstance(row, str) else json.dumps(row)).encode() for row in rows]
    preflight.check_lines(list(enumerate(lines, 1)))
    return preflight.report(0.0)


def pair(first: str, second: str, prompt: str = "2+2?") -> Json:
    return {
        "input": {"messages": [user(prompt)]},
        "preferred_output": [answer(first)],
        "non_preferred_output": [answer(second)],
    }


SYSTEM_ROW = {"messages": [{"role": "system", "content": "Be brief."}, user("hi"), answer("ho")]}
HALF = (
    '{"messages": [{"role": "user", "content": "\\ud83d"}, {"role": "assistant", "content": "y"}]}'
)
FOUND: dict[str, tuple[Json | str, Task, str, str, bool]] = {
    "a system message that is refused": (SYSTEM_ROW, TASK, "gemma2", "template_refuses", True),
    "no JSON": ('{"messages": [', TASK, "", "unreadable_row", True),
    "JSON that is too deep": ("[" * 100_000, TASK, "", "unreadable_row", True),
    "another member": ({"text": "a"}, TASK, "", "unreadable_row", True),
    "half a character": (HALF, TASK, "", "unreadable_row", True),
    "an answer beyond the cut": (LONG, TASK, "", "row_not_trained", False),
    "an answer that is cut": (LONG_ANSWER, TASK, "", "answer_cut", False),
    "what follows the answer is cut": (TOO_MUCH_AFTER, TASK, "", "long_row", False),
    "a call that is left out": (CALLS, TASK, "", "tool_call_not_rendered", True),
    "tools that are left out": (GOOD | {"tools": [ADD]}, TASK, "", "tools_not_rendered", False),
    "a thought that is left out": (THOUGHT, TASK, "", "reasoning_not_rendered", False),
    "a prompt that goes on": (GOOD, TASK, "deepseek_r1", "prompt_differs", False),
    "equal answers": (pair("4.", "4."), PAIRS, "", "answers_equal", False),
    "answers equal where they are cut": (
        pair("word " * 99 + "a", "word " * 99 + "b"),
        REWARD,
        "",
        "answers_equal",
        False,
    ),
    "answers beyond the cut": (pair("a", "b", "word " * 99), PAIRS, "", "row_not_trained", False),
    "a prompt without room": ({"messages": [user("word " * 99)]}, PROMPTS, "", "long_row", False),
    "a text that is cut": ({"text": "word " * 99, "label": "a"}, LABELS, "", "long_row", False),
}
GOOD_ROWS = {
    TASK.method: GOOD,
    PAIRS.method: pair("4.", "5."),
    REWARD.method: pair("4.", "5."),
    PROMPTS.method: {"messages": [user("2+2?")]},
    LABELS.method: {"text": "fine", "label": "a"},
}


@pytest.mark.parametrize("case", FOUND)
def test_each_fault_is_found_at_its_line(case: str) -> None:
    row, task, family, code, is_error = FOUND[case]
    good_row = GOOD_ROWS[task.method]
    report = checked(good_row, row, good_row, task=task, family=family)

    by_code = {f.code: f for f in report.findings}
    assert 2 in by_code[code].lines
    assert by_code[code].is_error == is_error
    assert by_code[code].message


@pytest.mark.parametrize("case", [c for c, (*_, code, bad) in FOUND.items() if not bad])
def test_a_file_of_rows_that_all_teach_nothing_cannot_train(case: str) -> None:
    row, task, family, code, _ = FOUND[case]
    report = checked(row, row, task=task, family=family)
    useless = code in ("row_not_trained", "answers_equal")
    useless = useless or (code == "long_row" and task is PROMPTS)

    assert bool(report.errors) == useless
    if useless:
        with pytest.raises(InvalidRequest) as caught:
            refuse_untrainable("rows.jsonl", report, param="training_file")
        assert caught.value.code == "invalid_training_file"
        assert "lines 1, 2" in str(caught.value)
        refuse_untrainable("rows.jsonl", report, param="validation_file", is_validation=True)
        assert list(warnings("rows.jsonl", report))


@pytest.mark.parametrize("method", GOOD_ROWS)
def test_good_rows_have_no_findings(method: str) -> None:
    task = {t.method: t for t in (TASK, PAIRS, REWARD, PROMPTS, LABELS)}[method]
    report = checked(GOOD_ROWS[method], task=task)

    assert report.findings == ()
    assert report.sequences == (2 if task.has_answers else 1)


def test_a_second_call_that_is_left_out_is_named() -> None:
    """gpt-oss' template renders the first call of a message alone."""
    calls = [call({"a": 1}, call_id="c1"), call({"b": 2}, call_id="c2")]
    row = {"messages": [user("a"), answer("", tool_calls=calls)], "tools": [ADD]}
    report = checked(row, task=LONG_TASK, family="harmony")

    assert [f.code for f in report.errors] == ["tool_call_not_rendered"]


def test_examples_are_counted_one_for_each_answer_where_history_is_rewritten() -> None:
    with pytest.raises(SplitNeeded):
        checked(TWO, family="qwen3")
    report = checked(GOOD, TWO, task=replace(LONG_TASK, splits_answers=True), family="qwen3")

    assert (report.rows, report.examples) == (2, 3)
    (warning,) = [text for finding, text in warnings("rows.jsonl", report)]
    assert "3 examples of 2 rows" in warning


def test_an_output_of_two_answers_under_such_a_template_is_refused() -> None:
    row = pair("4.", "5.")
    row["preferred_output"] = [answer("4."), user("sure?"), answer("yes")]
    report = checked(row, task=PAIRS, family="qwen3")

    assert "one message of the assistant only" in report.errors[0].message


def test_sequences_side_by_side_are_as_long_as_the_longest_of_them() -> None:
    lengths = (10, 20, 30, 40)

    assert mean_padded(lengths, 1) == 25
    assert mean_padded(lengths, 2) == 32  # (1 * 10 + 3 * 20 + 5 * 30 + 7 * 40) / 16 = 31.25
    assert mean_padded(lengths, 1000) == 40
