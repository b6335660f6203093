"""Rows that our rendering and transformers' `apply_chat_template` both take are rendered alike."""

import json
from datetime import date
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2.exceptions import TemplateError
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

from rendering.chat import (
    render_chat,
    render_text,
    rewrites_history,
    split_answers,
    trained_indexes,
)
from rendering.templates.chat_template import RenderError
from rendering.templates.tool_calls import CallForm
from rendering.tokenizer import Tokenizer
from rendering.tokens import tokenize_chat
from tests.unit.families import FAMILIES, template
from tests.unit.trainer.model.tiny_tokenizer import tiny_tokenizer

Json = dict[str, Any]
TODAY = date(2026, 2, 3)
ID = "abcdefghi"  # as every template takes it
WORDS = st.sampled_from(
    [
        *("hi", "hi ", " hi", "\n\nhi\n", "4", "<b>\u00e9&amp;</b>", "{{ x }} {% raw %}", "'\"\\"),
        *("\U0001f600", "<think>\nno\n</think>\n\nyes", "[INST]", "\u4f60\u597d", "a\tb\r\nc"),
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 10**20) | st.floats(-9, 9) | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=4,
)
ARGUMENTS = st.dictionaries(st.sampled_from(["a", "b c", "\u00e9"]), VALUES, max_size=2)
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds <&> \u00e9.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    },
}


@st.composite
def turns(draw: st.DrawFn) -> list[Json]:
    """Draw a question, perhaps tool calls with their results, and an answer."""
    messages: list[Json] = [{"role": "user", "content": draw(WORDS)}]
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        arguments = json.dumps(draw(ARGUMENTS), ensure_ascii=draw(st.booleans()))
        function = {"name": "add", "arguments": arguments}
        call = {"id": ID, "type": "function", "function": function}
        messages += [
            {"role": "assistant", "content": draw(WORDS | st.just("")), "tool_calls": [call]},
            {"role": "tool", "tool_call_id": ID, "content": draw(WORDS)},
        ]
    answer = {"role": "assistant", "content": draw(WORDS), "weight": draw(st.sampled_from([0, 1]))}
    return [
        *messages,
        answer | draw(st.just({}) | st.fixed_dictionaries({"reasoning_content": WORDS})),
    ]


@st.composite
def rows(draw: st.DrawFn) -> Json:
    """Draw a chat as it is uploaded."""
    system = draw(st.lists(st.fixed_dictionaries({"content": WORDS}), max_size=1))
    messages = [{"role": "system", **message} for message in system]
    for turn in draw(st.lists(turns(), min_size=1, max_size=3)):
        messages += turn
    return {"messages": messages} | draw(st.sampled_from([{}, {"tools": [TOOL]}]))


def as_sent(row: Json, form: CallForm, count: int | None = None) -> list[Json]:
    """Return the first messages as a client sends them, with arguments in the template's form."""
    messages = [{n: v for n, v in m.items() if n != "weight"} for m in row["messages"][:count]]
    for message in messages:
        for call in message.get("tool_calls", ()):
            raw = call["function"]["arguments"]
            arguments = form.arguments(raw, json.loads(raw))
            message["tool_calls"] = [
                call | {"function": call["function"] | {"arguments": arguments}}
            ]
    return messages


@cache
def transformers_tokenizer() -> Any:  # noqa: ANN401 - transformers is untyped here
    tokenizer = tiny_tokenizer()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend, **tokenizer.special_tokens)


def applied(family: str, row: Json, form: CallForm, count: int | None = None, **how: bool) -> Any:  # noqa: ANN401
    """Return what transformers renders of the first messages; None if the template refuses."""
    compiled = chat_template_utils._compile_jinja_template(template(family))
    compiled.globals["strftime_now"] = TODAY.strftime
    try:
        return transformers_tokenizer().apply_chat_template(
            as_sent(row, form, count),
            tools=row.get("tools"),
            chat_template=template(family),
            **{"tokenize": False, **how},
        )
    except (TemplateError, TypeError):
        return None


@cache
def our_tokenizer(family: str) -> Tokenizer:
    return tiny_tokenizer(template(family))


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=20)
@given(row=rows())
def test_text_and_prompts_are_those_of_transformers(family: str, row: Json) -> None:
    tokenizer = our_tokenizer(family)
    form = tokenizer.call_form(row.get("tools"))
    expected = applied(family, row, form)
    try:
        text = render_text(tokenizer, row, TODAY)
    except RenderError:
        assert expected is None
        return
    if form.null_content:
        return  # transformers leaves a null content out
    assert text == expected

    splits = rewrites_history(tokenizer, row, TODAY)
    chats = [render_chat(tokenizer, r, TODAY) for r in (split_answers(row) if splits else [row])]
    starts: list[tuple[str, str]] = []
    for chat in chats:
        starts += [(chat.text[:a], chat.only_in_prompts) for a, _ in _without_tails(chat.trained)]
    for index, (before, left_out) in zip(trained_indexes(row), starts, strict=True):
        prompt = applied(family, row, form, index, add_generation_prompt=True)
        assert before in (prompt, prompt.removesuffix(left_out))


def _without_tails(spans: tuple[tuple[int, int], ...]) -> list[tuple[int, int]]:
    """Without spans that touch the one before: the mark of the text's end."""
    ends = {end for start, end in spans if end > start}
    return [span for span in spans if span[0] not in ends]


@settings(max_examples=60)
@given(row=rows())
def test_tokens_and_masks_are_those_of_transformers(row: Json) -> None:
    for message in row["messages"]:
        message.pop("weight", None)  # transformers knows none
    tokenizer = our_tokenizer("marked")
    how = {"tokenize": True, "return_dict": True, "return_assistant_tokens_mask": True}
    expected = applied("marked", row, tokenizer.call_form(None), **how)
    tokens = tokenize_chat(tokenizer, row, 100_000, TODAY)

    assert tokens.ids == expected["input_ids"]
    assert tokens.trained == [bool(mask) for mask in expected["assistant_masks"]]
