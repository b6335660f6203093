"""Calls of tools and their results, in the form that a template wants."""

import json
from datetime import date
from typing import Any

import pytest

from rendering.chat import render_text
from rendering.templates.conversation import template_messages
from rendering.templates.tool_calls import CallForm
from tests.unit.families import template
from tests.unit.trainer.model.tiny_tokenizer import tiny_tokenizer

Json = dict[str, Any]
TODAY = date(2026, 2, 3)
LOOP = "{% for m in messages %}[{{ m.role }}]"
CALLS = "{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}"
END = "{% endfor %}"


def call(call_id: str | None, name: str = "add", **arguments: object) -> Json:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"type": "function", "function": function} | ({"id": call_id} if call_id else {})


def calling(*calls: Json) -> Json:
    return {"role": "assistant", "content": None, "tool_calls": [*calls]}


def result(call_id: str | None = None, **more: object) -> Json:
    about = {"tool_call_id": call_id} if call_id else {}
    return {"role": "tool", "content": "5", **about, **more}


def text(source: str, *messages: Json) -> str:
    row = {"messages": [{"role": "user", "content": "x"}, *messages]}
    return render_text(tiny_tokenizer(source), row, TODAY)


def test_a_result_has_no_name_that_clients_do_not_send() -> None:
    source = LOOP + CALLS + "{{ m.name or m.content }}" + END

    assert text(source, calling(call("call_1", a=1)), result("call_1")).endswith("[tool]5")


def test_a_result_has_its_functions_name_where_the_template_needs_it() -> None:
    source = LOOP + CALLS + "{% if m.role == 'tool' %}{{ m.name + m.content }}{% endif %}" + END

    assert text(source, calling(call("call_1", a=1)), result("call_1")).endswith("[tool]add5")


def test_results_without_an_id_answer_the_open_calls_in_their_order() -> None:
    calls = (call("one_1", "one"), call("two_2", "two"), call(None, "three"))
    row = {"messages": [calling(*calls), result(), result("two_2"), result()]}

    assert [m["tool_call_id"] for m in template_messages(row, CallForm())[1:]] == [
        *("one_1", "two_2", "call_2")
    ]


def test_functions_answer_the_call_of_their_name() -> None:
    old = {"role": "assistant", "content": None, "function_call": call(None, "one")["function"]}
    row = {"messages": [old, {"role": "function", "name": "one", "content": "1"}] * 2}
    found = template_messages(row, CallForm())

    assert [m["tool_call_id"] for m in found if m["role"] == "tool"] == ["call_0", "call_1"]
    assert [m["tool_calls"][0]["id"] for m in found if "tool_calls" in m] == ["call_0", "call_1"]


@pytest.mark.parametrize("family", ["mistral", "mistral_small"])
@pytest.mark.parametrize("call_id", [None, "1", "call_1", "call_abcdefghijkl", "abcdefghi"])
def test_mistral_takes_calls_with_ids_of_any_length(family: str, call_id: str | None) -> None:
    messages = [calling(call(call_id, a=1)), result(call_id)]
    found = text(template(family), *messages)

    assert found.count(found.split('"id": "')[1][:9]) == 2


def test_no_empty_answer_is_trained_beside_a_call() -> None:
    """DeepSeek R1 writes an answer of its own for any content that is not null."""
    source = template("deepseek_r1")
    nothing = text(source, calling(call("call_1", a=1)))

    assert nothing == text(source, calling(call("call_1", a=1)) | {"content": ""})
    assert nothing.count("<\uff5cAssistant\uff5c>") == 1


@pytest.mark.parametrize(
    ("shown", "expected"),
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
def test_arguments_are_given_as_a_template_shows_them_best(shown: str, expected: str) -> None:
    source = f"{LOOP}{{% for c in m.tool_calls or [] %}}{shown}{{% endfor %}}{END}"

    assert expected in text(source, calling(call("call_1", a='\u00e9"<&>')))
