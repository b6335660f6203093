"""Chats through templates with the constructs of published models: what is read and trained."""

import json
from datetime import date
from typing import Any

import pytest
from transformers.utils import chat_template_utils

from rendering.chat import (
    RenderedChat,
    render_chat,
    render_prompt,
    rewrites_history,
    split_answers,
)
from rendering.conversation import messages_of, tools_of
from rendering.refusals import explain
from rendering.template import RenderError
from rendering.tokenizer import Tokenizer
from tests.unit.families import FAMILIES, template
from tests.unit.tiny_tokenizer import tiny_tokenizer

Json = dict[str, Any]
TODAY = date(2026, 2, 3)
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


def answer(text: str | None, **more: Any) -> Json:  # noqa: ANN401
    return {"role": "assistant", "content": text, **more}


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
    "parts": {"messages": [user("a"), answer("b")] * 3},
}
NO_SYSTEM, NO_CALLS = {"gemma2"}, {"gemma2", "gemma3"}
REWRITE = {"harmony", "phi3", "qwen3"}


def rendered(family: str, row: Json) -> list[RenderedChat]:
    """The examples that a run would train on."""
    tokenizer = tiny_tokenizer(template(family))
    splits = rewrites_history(tokenizer, row, TODAY)
    return [render_chat(tokenizer, one, TODAY) for one in (split_answers(row) if splits else [row])]


def trained(found: list[RenderedChat]) -> list[str]:
    return [one.text[start:end] for one in found for start, end in one.trained]


@pytest.mark.parametrize(
    ("family", "answers"),
    [
        ("deepseek_r1", [f"4.{END}", f"6.{END}"]),
        ("deepseek_v3", [f"4.{END}", f"6.{END}"]),
        ("gemma2", ["4.<end_of_turn>\n", "6.<end_of_turn>\n"]),
        ("gemma3", ["4.<end_of_turn>\n", "6.<end_of_turn>\n"]),
        (
            "harmony",
            [f"<|channel|>final<|message|>{text}<|return|>" for text in ("4.", "6.")],
        ),
        ("llama3", ["4.<|eot_id|>", "6.<|eot_id|>"]),
        ("marked", ["4.<|end|>", "6.<|end|>"]),
        ("mistral", [" 4.<|end|>", " 6.<|end|>"]),
        ("phi3", ["4.<|end|>\n<|end|>", "6.<|end|>\n<|end|>"]),
        ("qwen2_5", ["4.<|im_end|>\n", "6.<|im_end|>\n"]),
        ("qwen3", [f"<think>\n\n</think>\n\n{text}<|im_end|>\n" for text in ("4.", "6.")]),
    ],
)
def test_both_answers_of_a_chat_are_trained_as_the_last_one_is_rendered(
    family: str, answers: list[str]
) -> None:
    found = rendered(family, TWO)

    assert trained(found) == answers
    assert len(found) == (2 if family in REWRITE else 1)


@pytest.mark.parametrize("family", sorted({*FAMILIES} - NO_CALLS - {"deepseek_r1", "phi3"}))
def test_calls_are_trained_with_their_arguments_escaped_once(family: str) -> None:
    first, second = trained(rendered(family, CALLS))
    old = trained(rendered(family, OLD_CALLS))

    assert '{"a": 2}' in first
    assert "add" in first
    assert "\\" not in first
    assert "It is 5." in second
    if family != "mistral":  # whose ids follow from the rows'
        assert old == [first, second]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", ROWS)
def test_each_answer_follows_the_very_text_that_asks_for_it_at_inference(
    family: str, name: str
) -> None:
    row, tokenizer = ROWS[name], tiny_tokenizer(template(family))
    try:
        found = rendered(family, row)
    except RenderError:
        assert family in NO_CALLS
        return
    places = [n for n, m in enumerate(row["messages"]) if m["role"] == "assistant"]
    wanted = [n for n in places if row["messages"][n].get("weight", 1)]
    starts = [one.text[:start] for one in found for start, _ in one.trained]
    for place, before in zip(wanted, starts, strict=True):
        asked = row | {"messages": row["messages"][:place]}
        prompt = render_prompt(tokenizer, asked, TODAY)
        assert prompt.removesuffix("<think>\n" if family == "deepseek_r1" else "") == before


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", ROWS)
def test_a_whole_chat_is_rendered_as_transformers_renders_it(family: str, name: str) -> None:
    row, tokenizer = ROWS[name], tiny_tokenizer(template(family))
    tools = tools_of(row)
    messages = messages_of(row, tokenizer.call_form(tools))
    ours, theirs = _ours(tokenizer, messages, tools), _theirs(tokenizer, family, messages, tools)

    assert ours == theirs


def _ours(tokenizer: Tokenizer, messages: list[Json], tools: list[Json] | None) -> object:
    try:
        return tokenizer.template(tools).render(messages, tools, TODAY)
    except RenderError as error:
        return str(error).removeprefix("TypeError: ").removeprefix("UndefinedError: ")


def _theirs(
    tokenizer: Tokenizer, family: str, messages: list[Json], tools: list[Json] | None
) -> object:
    compiled = chat_template_utils._compile_jinja_template(template(family))
    compiled.globals["strftime_now"] = TODAY.strftime
    marked = family == "marked"
    try:
        texts, spans = chat_template_utils.render_jinja_template(
            [messages],
            tools=tools,
            chat_template=template(family),
            return_assistant_tokens_mask=marked,
            **tokenizer.special_tokens,
        )
    except Exception as error:  # noqa: BLE001 - a template raises what it likes
        return str(error)
    return texts[0], [tuple(span) for span in spans[0]] if marked else []


def test_reasoning_is_trained_where_the_template_has_a_place_for_it() -> None:
    assert trained(rendered("qwen3", THOUGHT)) == ["<think>\nTwo twos.\n</think>\n\n4.<|im_end|>\n"]
    (told,) = trained(rendered("harmony", THOUGHT))
    assert told.startswith("<|channel|>analysis<|message|>Two twos.<|end|>")


def test_mistrals_system_message_is_read_before_every_answer() -> None:
    """Its template prints the system message before an open question alone."""
    first, second = rendered("mistral", WITH_SYSTEM)

    assert first.text == "<|bos|>[INST] Be brief.\n\n2+2?[/INST] 4.<|end|>"
    assert second.text.endswith("[INST] Be brief.\n\n3+3?[/INST] 6.<|end|>")


def test_an_answer_that_is_asked_for_with_an_open_thought_says_so() -> None:
    """A character that thought and answer share, here "<", is the answer's."""
    row = {"messages": [user("2+2?"), answer("<b>4</b>")]}
    (found,) = rendered("deepseek_r1", row)

    assert found.only_in_prompts == "<think>\n"
    assert trained([found]) == [f"<b>4</b>{END}"]


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
    tokenizer = tiny_tokenizer(template(family))
    with pytest.raises(RenderError) as caught:
        render_chat(tokenizer, row, TODAY)

    assert remedy in explain(tokenizer, row, caught.value, TODAY)


HOSTILE = [
    "{{ ''.__class__.__mro__ }}",
    "{{ dict.__call__.__globals__ }}",
    "{{ strftime_now.__closure__ }}",
    "{% set ns = namespace() %}{% set ns._x = 1 %}",
    "{{ messages.append(1) }}",
    "{{ range(10 ** 9) | list }}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{{ lipsum.__globals__['os'].popen('id') }}",
    "{{ cycler.__init__.__globals__ }}",
]


@pytest.mark.parametrize("source", HOSTILE)
def test_a_template_cannot_leave_its_sandbox(source: str) -> None:
    tokenizer = tiny_tokenizer(source + "{{ messages[0].content }}")
    try:
        text = render_prompt(tokenizer, {"messages": [user("hi")]}, TODAY)
    except RenderError:
        return
    assert text == "hi"
