"""Chats through templates with the constructs of published models: what is read and trained."""

import json
from collections.abc import Iterable
from datetime import date
from functools import cache
from typing import Any

import pytest

from rendering.answers import RenderedChat
from rendering.chat import (
    render_chat,
    render_prompt,
    rewrites_history,
    split_answers,
    trained_indexes,
)
from rendering.refusals import explain_refusal
from rendering.templates.chat_template import RenderError, Span
from rendering.tokenizer import Tokenizer
from tests.unit.families import FAMILIES, HERE, template
from tests.unit.trainer.model.tiny_tokenizer import tiny_tokenizer

Json = dict[str, Any]
TODAY = date(2026, 2, 3)
OPEN, CLOSE = "\u27e6", "\u27e7"  # around what is trained, in rendered.json
END = "<\uff5cend▁of▁sentence\uff5c>"  # DeepSeek's, with full-width bars
ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    },
}


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def answer(text: str | None, **members: Any) -> Json:  # noqa: ANN401
    return {"role": "assistant", "content": text, **members}


def call(arguments: Json, name: str = "add", call_id: str = "call_abcdefghijkl") -> Json:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": call_id, "type": "function", "function": function}


SYSTEM = {"role": "system", "content": "Be brief."}
RESULT = {"role": "tool", "tool_call_id": "call_abcdefghijkl", "content": "5"}
TWO = {"messages": [user("2+2?"), answer("4."), user("3+3?"), answer("6.")]}
WITH_SYSTEM = {"messages": [SYSTEM, *TWO["messages"]]}
MUTED = {"messages": [user("2+2?"), answer("4.", weight=0), user("3+3?"), answer("6.")]}
CALLS = {
    "messages": [
        *(user("2+3?"), answer(None, tool_calls=[call({"a": 2})])),
        *(RESULT, answer("It is 5.")),
    ],
    "tools": [ADD],
}
OLD_CALLS = {
    "messages": [
        user("2+3?"),
        answer("", function_call={"name": "add", "arguments": '{"a": 2}'}),
        {"role": "function", "name": "add", "content": "5"},
        answer("It is 5."),
    ],
    "functions": [ADD["function"]],
}
THOUGHT = {"messages": [user("2+2?"), answer("4.", reasoning_content="Two twos.")]}
ROWS = {
    "two answers": TWO,
    "system": WITH_SYSTEM,
    "weight 0": MUTED,
    "calls": CALLS,
    "reasoning": THOUGHT,
    "developer": {"messages": [SYSTEM | {"role": "developer"}, *TWO["messages"]]},
    "six messages": {"messages": [user("a"), answer("b")] * 3},
    "parts": {
        "messages": [
            user("")
            | {"content": [{"type": "text", "text": "2+"}, {"type": "text", "text": "2?"}]},
            answer(None) | {"content": [{"type": "text", "text": "4."}]},
        ]
    },
    "muted last": {"messages": [*TWO["messages"][:3], answer("6.", weight=0)]},
    "open question": {"messages": TWO["messages"][:3]},
    "thoughts twice": {
        "messages": [
            *(user("2+2?"), answer("4.", reasoning_content="Two twos.")),
            *(user("3+3?"), answer("6.", reasoning_content="Two threes.")),
        ]
    },
    "chain of calls": {
        "messages": [
            *(user("1+2+3?"), answer(None, tool_calls=[call({"a": 1}, call_id="call_1")])),
            {"role": "tool", "tool_call_id": "call_1", "content": "3"},
            answer(None, tool_calls=[call({"a": 3}, call_id="call_2")]),
            {"role": "tool", "tool_call_id": "call_2", "content": "6"},
            *(answer("It is 6."), user("Thanks."), answer("Welcome.")),
        ],
        "tools": [ADD],
    },
    "text and call": {
        "messages": [user("2+3?"), answer("I add.", tool_calls=[call({"a": 2})]), RESULT],
        "tools": [ADD],
    },
}
NO_CALLS = {"gemma2", "gemma3"}
UNSHOWN_CALLS = {*NO_CALLS, "marked_twice", "phi3"}
MISTRAL = {"mistral", "mistral_small"}  # whose ids follow from the rows'
EXPECTED = json.loads((HERE / "rendered.json").read_text())


@cache
def tokenizer_of(family: str) -> Tokenizer:
    """Return the tiny tokenizer with the chat template of a family."""
    return tiny_tokenizer(template(family))


def rendered(family: str, row: Json) -> list[RenderedChat]:
    """Return the examples that a run would train on."""
    tokenizer = tokenizer_of(family)
    splits = rewrites_history(tokenizer, row, TODAY)
    return [
        render_chat(tokenizer, chat, TODAY) for chat in (split_answers(row) if splits else [row])
    ]


def joined(spans: Iterable[Span]) -> list[Span]:
    """Spans that touch, as one: a template may mark the end of the text by itself."""
    merged: list[Span] = []
    for start, end in spans:
        if merged and merged[-1][1] == start:
            start, _ = merged.pop()  # noqa: PLW2901 - the span grows
        merged.append((start, end))
    return merged


def trained(chats: list[RenderedChat]) -> list[str]:
    return [chat.text[start:end] for chat in chats for start, end in chat.trained]


def with_brackets(chat: RenderedChat) -> str:
    """Return the text with brackets around the parts that are trained."""
    text = chat.text
    for start, end in sorted(chat.trained, reverse=True):
        text = f"{text[:start]}{OPEN}{text[start:end]}{CLOSE}{text[end:]}"
    return text


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", ["system", "calls", "reasoning"])
def test_rows_are_read_and_trained_as_written_down(family: str, name: str) -> None:
    try:
        texts = [with_brackets(chat) for chat in rendered(family, ROWS[name])]
    except RenderError as error:
        texts = [f"refused: {error}"]

    assert texts == EXPECTED[family][name]


@pytest.mark.parametrize("family", sorted({*FAMILIES} - UNSHOWN_CALLS - {"qwen3_nothink"}))
def test_calls_are_trained_with_their_arguments_escaped_once(family: str) -> None:
    first, second = trained(rendered(family, CALLS))
    trained_texts = trained(rendered(family, OLD_CALLS))

    assert '{"a": 2}' in first
    assert "add" in first
    assert "\\" not in first
    assert "It is 5." in second
    if family not in MISTRAL:
        assert trained_texts == [first, second]


@pytest.mark.parametrize("family", FAMILIES)
def test_each_answer_follows_the_text_of_the_prompt_at_inference(family: str) -> None:
    for name, row in ROWS.items():
        try:
            chats = rendered(family, row)
        except RenderError:
            assert family in NO_CALLS, name
            continue
        starts = [(chat, chat.text[:start]) for chat in chats for start, _ in joined(chat.trained)]
        for index, (chat, before) in zip(trained_indexes(row), starts, strict=True):
            prompt_row = row | {"messages": row["messages"][:index]}
            prompt = render_prompt(tokenizer_of(family), prompt_row, TODAY)
            assert prompt.removesuffix(chat.only_in_prompts) == before, name


def test_an_answer_that_is_asked_for_with_an_open_thought_says_so() -> None:
    """A character that thought and answer share, here "<", is the answer's."""
    row = {"messages": [user("2+2?"), answer("<b>4</b>")]}
    (chat,) = rendered("deepseek_r1", row)

    assert chat.only_in_prompts == "<think>\n"
    assert trained([chat]) == [f"<b>4</b>{END}"]


@pytest.mark.parametrize(
    ("family", "row", "remedy"),
    [
        ("gemma2", WITH_SYSTEM, "put that text before the first user message"),
        ("gemma2", {"messages": [user("a"), user("b"), answer("c")]}, "join messages of one role"),
        ("gemma3", CALLS, "it takes no tool calls"),
        (
            "llama3",
            CALLS
            | {"messages": [user("a"), answer("", tool_calls=[call({"a": 1}), call({"a": 2})])]},
            "it takes one tool call a message",
        ),
    ],
)
def test_a_refusal_names_the_change_with_which_the_template_takes_the_row(
    family: str, row: Json, remedy: str
) -> None:
    tokenizer = tokenizer_of(family)
    with pytest.raises(RenderError) as caught:
        render_chat(tokenizer, row, TODAY)

    assert remedy in explain_refusal(tokenizer, row, caught.value, TODAY)
