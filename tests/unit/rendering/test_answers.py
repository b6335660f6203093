"""Answers, marks and tool calls in the forms that templates want, and what of them is trained."""

import json
from datetime import date
from typing import Any

import pytest

from rendering.answers import RenderedChat
from rendering.chat import render_chat, render_prompt, render_text
from rendering.sequences import RowReader, SplitNeeded
from rendering.task import Task
from rendering.templates.chat_template import RenderError
from rendering.templates.conversation import template_messages
from rendering.templates.tool_calls import CallForm
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
        sequences = RowReader(tokenizer, task(splits=False)).sequences(row)
    except SplitNeeded:
        sequences = RowReader(tokenizer, task(splits=True)).sequences(row)
    return [sequence.rendered for sequence in sequences if sequence.rendered]


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


def trained(chats: list[RenderedChat]) -> list[str]:
    return [chat.text[start:end] for chat in chats for start, end in chat.trained]


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
    (chat,) = read("qwen3_nothink", row)

    assert trained([chat]) == ["Two twos.\n</think>\n\n4.<|im_end|>\n"]
    assert chat.only_in_prompts == "\n</think>\n\n"


def test_a_call_after_a_result_follows_the_prompt_that_asks_for_it() -> None:
    """DeepSeek V3's prompt ends the results of tools; its text goes on with a new turn."""
    tokenizer = tiny_tokenizer(template("deepseek_v3"))
    messages = [
        *({"role": "user", "content": "x"}, called("call_1")),
        {"role": "tool", "tool_call_id": "call_1", "content": "1"},
    ]
    (chat,) = [render_chat(tokenizer, {"messages": [*quiet(messages), called("call_2")]}, TODAY)]
    prompt = render_prompt(tokenizer, {"messages": messages}, TODAY)

    assert chat.text.startswith(prompt)
    assert chat.trained == ((len(prompt), len(chat.text)),)
    assert prompt.endswith("outputs\u2581end\uff5c>")
    assert trained([chat])[0].startswith("<\uff5cAssistant\uff5c><\uff5ctool\u2581calls")


def called(number: str) -> Json:
    function = {"name": "add", "arguments": '{"a": 1}'}
    call = {"id": number, "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def quiet(messages: list[Json]) -> list[Json]:
    return [m | {"weight": 0} if m["role"] == "assistant" else m for m in messages]


ROW = {
    "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "one"},
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "two", "weight": 0},
        {"role": "user", "content": "y"},
        {"role": "assistant", "content": "three"},
    ]
}
SAID = (
    "<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
    "{% endgeneration %}{% else %}{{ m.content }}{% endif %}"
)
EACH = "{% for m in messages %}"
SPLIT_MARKS = SAID.replace("{% else", "|{% generation %}<e>{% endgeneration %}{% else")
PLAIN = EACH + "<{{ m.role }}>{{ m.content }}</>{% endfor %}"
ASK = "{% if add_generation_prompt %}<assistant>{% endif %}"


def marked(chat: RenderedChat) -> list[str]:
    return [chat.text[start:end] for start, end in chat.trained]


def render(source: str) -> RenderedChat:
    return render_chat(tiny_tokenizer(source), ROW, TODAY)


@pytest.mark.parametrize(
    "source",
    [
        f"{EACH}{SAID}{{% endfor %}}",
        f"{{% for m in messages recursive %}}{SAID}{{% endfor %}}",
        f"{{% macro turn(m) %}}{SAID}{{% endmacro %}}{EACH}{{{{ turn(m) }}}}{{% endfor %}}",
        f"{EACH}{{% set turn %}}{SAID}{{% endset %}}{{{{ turn }}}}{{% endfor %}}",
        "{% macro box() %}[{{ caller() }}]{% endmacro %}"
        f"{EACH}{{% call box() %}}{SAID}{{% endcall %}}{{% endfor %}}",
        f"{{% filter indent %}}{EACH}{SAID}{{% endfor %}}{{% endfilter %}}",
    ],
    ids=["loop", "recursive loop", "macro", "set block", "call block", "filter that keeps it"],
)
def test_marks_are_found_in_loops_macros_and_blocks(source: str) -> None:
    assert marked(render(source)) == ["one", "three"]


def test_an_answer_may_have_several_marks() -> None:
    chat = render(f"{EACH}{SPLIT_MARKS}{{% endfor %}}")

    assert marked(chat) == ["one", "<e>", "three", "<e>"]
    assert [chat.text[a:b] for a, b in chat.answers] == ["one|<e>", "two|<e>", "three|<e>"]


@pytest.mark.parametrize(
    "source",
    [
        f"{{% filter upper %}}{EACH}{SAID}{{% endfor %}}{{% endfilter %}}",
        f"{{% macro turn(m) %}}{SAID} {{% endmacro %}}{EACH}{{{{ turn(m) | length }}}}"
        "{% endfor %}",
    ],
    ids=["upper case", "length only"],
)
def test_marked_text_that_is_changed_afterwards_is_refused(source: str) -> None:
    """Transformers would train whatever stands at the places that were counted."""
    with pytest.raises(RenderError, match="changes what it marks"):
        render(source)


@pytest.mark.parametrize(
    "text", ["{#- as {% generation %} does -#}", "{% raw %}{% generation %}{% endraw %}"]
)
def test_a_mark_that_is_only_written_about_marks_nothing(text: str) -> None:
    assert marked(render(text + PLAIN + ASK)) == ["one</>", "three</>"]


def test_a_mark_that_another_answer_lacks_is_refused() -> None:
    with pytest.raises(RenderError, match="3 messages of the assistant, and the template marks 1"):
        render(
            f"{EACH}{SAID}{{% endfor %}}".replace(
                "'assistant'", "'assistant' and m.content == 'one'"
            )
        )


def test_a_marked_answer_that_is_asked_for_with_an_open_thought_says_so() -> None:
    """A character that thought and answer share, here "<", is not left out of the warning."""
    source = template("marked").replace(
        "'<|assistant|>' }}{%- endif", "'<|assistant|><think>' }}{%- endif"
    )
    row = {"messages": [ROW["messages"][0], {"role": "assistant", "content": "<b>one</b>"}]}
    chat = render_chat(tiny_tokenizer(source), row, TODAY)

    assert chat.only_in_prompts == "<think>"
    assert marked(chat) == ["<b>one</b><|end|>"]


LOOP = "{% for m in messages %}[{{ m.role }}]"
SHOWN = "{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}"
END = "{% endfor %}"


def call(call_id: str | None, name: str = "add", **arguments: object) -> Json:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"type": "function", "function": function} | ({"id": call_id} if call_id else {})


def calling(*calls: Json) -> Json:
    return {"role": "assistant", "content": None, "tool_calls": [*calls]}


def result(call_id: str | None = None, **members: object) -> Json:
    about = {"tool_call_id": call_id} if call_id else {}
    return {"role": "tool", "content": "5", **about, **members}


def text_of(source: str, *messages: Json) -> str:
    row = {"messages": [{"role": "user", "content": "x"}, *messages]}
    return render_text(tiny_tokenizer(source), row, TODAY)


def test_a_result_has_no_name_that_clients_do_not_send() -> None:
    source = LOOP + SHOWN + "{{ m.name or m.content }}" + END

    assert text_of(source, calling(call("call_1", a=1)), result("call_1")).endswith("[tool]5")


def test_a_result_has_its_functions_name_where_the_template_needs_it() -> None:
    source = LOOP + SHOWN + "{% if m.role == 'tool' %}{{ m.name + m.content }}{% endif %}" + END

    assert text_of(source, calling(call("call_1", a=1)), result("call_1")).endswith("[tool]add5")


def test_results_without_an_id_answer_the_open_calls_in_their_order() -> None:
    calls = (call("one_1", "one"), call("two_2", "two"), call(None, "three"))
    row = {"messages": [calling(*calls), result(), result("two_2"), result()]}

    assert [m["tool_call_id"] for m in template_messages(row, CallForm())[1:]] == [
        *("one_1", "two_2", "call_2")
    ]


def test_functions_answer_the_call_of_their_name() -> None:
    assistant = {
        "role": "assistant",
        "content": None,
        "function_call": call(None, "one")["function"],
    }
    row = {"messages": [assistant, {"role": "function", "name": "one", "content": "1"}] * 2}
    messages = template_messages(row, CallForm())

    assert [m["tool_call_id"] for m in messages if m["role"] == "tool"] == ["call_0", "call_1"]
    assert [m["tool_calls"][0]["id"] for m in messages if "tool_calls" in m] == ["call_0", "call_1"]


@pytest.mark.parametrize("family", ["mistral", "mistral_small"])
@pytest.mark.parametrize("call_id", [None, "1", "call_1", "call_abcdefghijkl", "abcdefghi"])
def test_mistral_takes_calls_with_ids_of_any_length(family: str, call_id: str | None) -> None:
    messages = [calling(call(call_id, a=1)), result(call_id)]
    text = text_of(template(family), *messages)

    assert text.count(text.split('"id": "')[1][:9]) == 2


def test_no_empty_answer_is_trained_beside_a_call() -> None:
    """DeepSeek R1 writes an answer of its own for any content that is not null."""
    source = template("deepseek_r1")
    nothing = text_of(source, calling(call("call_1", a=1)))

    assert nothing == text_of(source, calling(call("call_1", a=1)) | {"content": ""})
    assert nothing.count("<\uff5cAssistant\uff5c>") == 1


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("{{ c.function.arguments | tojson }}", '{"a": "\u00e9\\"<&>"}'),
        ("{{ '{}'.format(c.function.arguments | tojson) }}", '{"a": "\u00e9\\"<&>"}'),
        ("{{ c.function.arguments | string }}", '{"a": "\\u00e9\\"<&>"}'),
        ("{{ 'args: ' + c.function.arguments }}", 'args: {"a": "\\u00e9\\"<&>"}'),
        (
            "{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}{% endfor %}",
            'a=\u00e9"<&>',
        ),
        (
            "{{ c.function.arguments if c.function.arguments is string "
            "else c.function.arguments | tojson }}",
            '{"a": "\u00e9\\"<&>"}',
        ),
        ("{{ (c | tojson)[:0] }}{{ c.function | tojson }}", '"arguments": {"a": "\u00e9\\"<&>"}'),
    ],
    ids=["tojson", "format", "string", "joined", "items", "is string", "whole function"],
)
def test_arguments_are_given_as_a_template_shows_them_best(expression: str, expected: str) -> None:
    source = f"{LOOP}{{% for c in m.tool_calls or [] %}}{expression}{{% endfor %}}{END}"

    assert expected in text_of(source, calling(call("call_1", a='\u00e9"<&>')))
