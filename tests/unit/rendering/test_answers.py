"""Answers whose prompt is not simply the text before them, and rows that train one of several."""

from datetime import date
from typing import Any

import pytest

from rendering.answers import RenderedChat
from rendering.chat import render_chat, render_prompt
from rendering.sequences import RowReader, SplitNeeded
from rendering.task import Task
from tests.unit.families import template
from tests.unit.trainer.model.tiny_tokenizer import tiny_tokenizer

Json = dict[str, Any]
TODAY = date(2026, 2, 3)
ASKED = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4."}]
ASKED_AGAIN = [{"role": "user", "content": "3+3?"}, {"role": "assistant", "content": "6."}]


def read(family: str, row: Json) -> list[RenderedChat]:
    """Return the examples that a training run makes of a row, as the check of rows finds them."""
    tokenizer = tiny_tokenizer(template(family))
    try:
        found = RowReader(tokenizer, task(splits=False)).sequences(row)
    except SplitNeeded:
        found = RowReader(tokenizer, task(splits=True)).sequences(row)
    return [one.rendered for one in found if one.rendered]


def task(*, splits: bool) -> Task:
    return Task(
        folder="",
        method="sft",
        has_answers=False,
        max_seq_len=512,
        room=512,
        date=TODAY.isoformat(),
        splits_answers=splits,
    )


def trained(found: list[RenderedChat]) -> list[str]:
    return [one.text[start:end] for one in found for start, end in one.trained]


@pytest.mark.parametrize("family", ["harmony", "marked_twice", "phi3", "qwen3", "qwen3_nothink"])
@pytest.mark.parametrize(
    "after",
    [ASKED_AGAIN[:1], [ASKED_AGAIN[0], ASKED_AGAIN[1] | {"weight": 0}]],
    ids=["a question", "an answer of weight 0"],
)
def test_an_answer_with_messages_behind_it_is_trained_as_if_it_were_the_last(
    family: str, after: list[Json]
) -> None:
    """These templates rewrite it once it is not."""
    assert read(family, {"messages": [*ASKED, *after]}) == read(family, {"messages": ASKED})


@pytest.mark.parametrize("family", ["llama3", "qwen2_5", "harmony", "deepseek_v3", "phi3"])
def test_a_greeting_before_any_question_is_trained(family: str) -> None:
    row = {"messages": [{"role": "assistant", "content": "Hello!"}, *ASKED]}
    greeting, answer = trained(read(family, row))

    assert greeting.startswith("Hello!")
    assert "4." in answer


def test_reasoning_is_trained_where_answers_are_asked_for_without_it() -> None:
    """The template's prompt closes the thought; reasoning opens it, and the row says so."""
    row = {"messages": [ASKED[0], ASKED[1] | {"reasoning_content": "Two twos."}]}
    (found,) = read("qwen3_nothink", row)

    assert trained([found]) == ["Two twos.\n</think>\n\n4.<|im_end|>\n"]
    assert found.only_in_prompts == "\n</think>\n\n"


def test_a_call_after_a_result_follows_the_prompt_that_asks_for_it() -> None:
    """DeepSeek V3's prompt ends the results of tools; its text goes on with a new turn."""
    tokenizer = tiny_tokenizer(template("deepseek_v3"))
    messages = [
        *({"role": "user", "content": "x"}, called("call_1")),
        {"role": "tool", "tool_call_id": "call_1", "content": "1"},
    ]
    (found,) = [render_chat(tokenizer, {"messages": [*quiet(messages), called("call_2")]}, TODAY)]
    prompt = render_prompt(tokenizer, {"messages": messages}, TODAY)

    assert found.text.startswith(prompt)
    assert found.trained == ((len(prompt), len(found.text)),)
    assert prompt.endswith("outputs\u2581end\uff5c>")
    assert trained([found])[0].startswith("<\uff5cAssistant\uff5c><\uff5ctool\u2581calls")


def called(number: str) -> Json:
    function = {"name": "add", "arguments": '{"a": 1}'}
    call = {"id": number, "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def quiet(messages: list[Json]) -> list[Json]:
    return [m | {"weight": 0} if m["role"] == "assistant" else m for m in messages]
