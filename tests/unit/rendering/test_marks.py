"""What a template marks with `{% generation %}`, wherever the mark stands."""

from datetime import date

import pytest

from rendering.answers import RenderedChat
from rendering.chat import render_chat
from rendering.templates.chat_template import RenderError
from tests.unit.families import template
from tests.unit.trainer.model.tiny_tokenizer import tiny_tokenizer

TODAY = date(2026, 2, 3)
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
LOOP = "{% for m in messages %}"
SPLIT_MARKS = SAID.replace("{% else", "|{% generation %}<e>{% endgeneration %}{% else")
PLAIN = LOOP + "<{{ m.role }}>{{ m.content }}</>{% endfor %}"
ASK = "{% if add_generation_prompt %}<assistant>{% endif %}"


def trained(found: RenderedChat) -> list[str]:
    return [found.text[start:end] for start, end in found.trained]


def rendered(source: str) -> RenderedChat:
    return render_chat(tiny_tokenizer(source), ROW, TODAY)


@pytest.mark.parametrize(
    "source",
    [
        f"{LOOP}{SAID}{{% endfor %}}",
        f"{{% for m in messages recursive %}}{SAID}{{% endfor %}}",
        f"{{% macro turn(m) %}}{SAID}{{% endmacro %}}{LOOP}{{{{ turn(m) }}}}{{% endfor %}}",
        f"{LOOP}{{% set turn %}}{SAID}{{% endset %}}{{{{ turn }}}}{{% endfor %}}",
        "{% macro box() %}[{{ caller() }}]{% endmacro %}"
        f"{LOOP}{{% call box() %}}{SAID}{{% endcall %}}{{% endfor %}}",
        f"{{% filter indent %}}{LOOP}{SAID}{{% endfor %}}{{% endfilter %}}",
    ],
    ids=["loop", "recursive loop", "macro", "set block", "call block", "filter that keeps it"],
)
def test_marks_are_found_in_loops_macros_and_blocks(source: str) -> None:
    assert trained(rendered(source)) == ["one", "three"]


def test_an_answer_may_have_several_marks() -> None:
    found = rendered(f"{LOOP}{SPLIT_MARKS}{{% endfor %}}")

    assert trained(found) == ["one", "<e>", "three", "<e>"]
    assert [found.text[a:b] for a, b in found.answers] == ["one|<e>", "two|<e>", "three|<e>"]


@pytest.mark.parametrize(
    "source",
    [
        f"{{% filter upper %}}{LOOP}{SAID}{{% endfor %}}{{% endfilter %}}",
        f"{{% macro turn(m) %}}{SAID} {{% endmacro %}}{LOOP}{{{{ turn(m) | length }}}}"
        "{% endfor %}",
    ],
    ids=["upper case", "length only"],
)
def test_marked_text_that_is_changed_afterwards_is_refused(source: str) -> None:
    """Transformers would train whatever stands at the places that were counted."""
    with pytest.raises(RenderError, match="changes what it marks"):
        rendered(source)


@pytest.mark.parametrize(
    "words", ["{#- as {% generation %} does -#}", "{% raw %}{% generation %}{% endraw %}"]
)
def test_a_mark_that_is_only_written_about_marks_nothing(words: str) -> None:
    assert trained(rendered(words + PLAIN + ASK)) == ["one</>", "three</>"]


def test_a_mark_that_another_answer_lacks_is_refused() -> None:
    with pytest.raises(RenderError, match="3 messages of the assistant, and the template marks 1"):
        rendered(
            f"{LOOP}{SAID}{{% endfor %}}".replace(
                "'assistant'", "'assistant' and m.content == 'one'"
            )
        )


def test_a_marked_answer_that_is_asked_for_with_an_open_thought_says_so() -> None:
    """A character that thought and answer share, here "<", is not left out of the warning."""
    asked = template("marked").replace(
        "'<|assistant|>' }}{%- endif", "'<|assistant|><think>' }}{%- endif"
    )
    row = {"messages": [ROW["messages"][0], {"role": "assistant", "content": "<b>one</b>"}]}
    found = render_chat(tiny_tokenizer(asked), row, TODAY)

    assert found.only_in_prompts == "<think>"
    assert trained(found) == ["<b>one</b><|end|>"]
