"""What a hostile chat template may try: it sees plain JSON, and every failure is a RenderError."""

import resource
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from rendering.chat import render_prompt
from rendering.templates.chat_template import RenderError
from tests.unit.trainer.model.tiny_tokenizer import tiny_tokenizer

ROW = {"messages": [{"role": "user", "content": "hi"}]}
INNER_MEMBERS = [
    f"__{name}__" for name in ("class", "init", "globals", "self", "func", "closure", "code")
]
MORE_BYTES = 2 * 1024**3  # of address space


@pytest.fixture(autouse=True)
def _limited_memory() -> Iterator[None]:
    """As the process that checks rows has it."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MORE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def tried(source: str) -> str:
    """Return what the template prints; "" if it is refused."""
    tokenizer = tiny_tokenizer(source + "|{{ messages[0].content }}")
    try:
        return render_prompt(tokenizer, ROW, date(2026, 2, 3)).removesuffix("|hi")
    except RenderError:
        return ""


@pytest.mark.parametrize(
    "holder",
    [
        *("''", "1", "[]", "messages", "messages[0]", "dict", "dict.fromkeys", "namespace"),
        *("namespace()", "cycler", "joiner", "lipsum", "range", "self", "strftime_now"),
        *("raise_exception", "rekindle_generation_marks", "rekindle_generation_marks.record"),
        *("''.format", "''.encode()", "(messages | map('upper'))", "messages[0].items"),
    ],
)
def test_no_object_gives_its_inner_members_away(holder: str) -> None:
    for member in INNER_MEMBERS:
        assert tried(f"{{{{ {holder}.{member} }}}}") == ""
        assert tried(f"{{{{ {holder}.{member}.{member} }}}}") == ""
        assert tried(f"{{{{ {holder} | attr('{member}') }}}}") == ""
        assert tried(f"{{{{ {holder}['{member}'] }}}}") == ""


@pytest.mark.parametrize(
    "source",
    [
        "{{ '{0.__class__.__mro__}'.format(1) }}",
        "{{ '{x.__class__.__mro__}'.format_map({'x': 1}) }}",
        "{% set f = '{0.__class__}'.format %}{{ f(1) }}",
        "{{ ('{0.__class__}' | attr('format'))(1) }}",
        "{{ messages | map(attribute='__class__') | join }}",
        "{{ messages | map('attr', '__class__') | join }}",
        "{{ messages | sum(attribute='__class__') }}",
        "{% for m in messages %}{{ loop.__init__.__globals__ }}{{ loop._iterator }}{% endfor %}",
        "{% macro m() %}{{ caller.__globals__ }}{% endmacro %}{% call m() %}{% endcall %}",
        "{% macro m() %}{{ m._func.__globals__ }}{% endmacro %}{{ m() }}",
        "{{ self._TemplateReference__context }}",
        "{% set ns = namespace(__class__=1) %}{{ ns.__class__ }}",
        "{% set ns = namespace() %}{% set ns._x = 1 %}{{ ns._x }}",
    ],
)
def test_no_detour_leads_to_inner_members(source: str) -> None:
    assert tried(source) == ""


@pytest.mark.parametrize(
    "change",
    [
        *("messages.append(1)", "messages.clear()", "messages.sort()", "messages[0].clear()"),
        *("messages[0].update(content='x')", "messages[0].pop('content')"),
        *("messages[0].setdefault('x', 1)", "messages.__setitem__(0, 1)"),
    ],
)
def test_a_template_cannot_change_the_messages(change: str) -> None:
    tried(f"{{{{ {change} }}}}")

    assert ROW == {"messages": [{"role": "user", "content": "hi"}]}
    assert tried(f"{{{{ {change} }}}}") == ""


@pytest.mark.parametrize(
    "source",
    [
        "{{ range(10 ** 9) | list }}",
        "{{ messages[0].content * 10 ** 11 }}",
        "{{ messages * 10 ** 11 }}",
        "{{ '%10000000000d' % messages | length }}",
        "{{ '{:>10000000000}'.format(messages | length) }}",
        "{{ messages[0].content.ljust(10 ** 11) }}",
        "{{ messages[0].content | center(10 ** 11) }}",
        "{{ messages | tojson(indent=10 ** 11) }}",
    ],
)
def test_more_than_the_memory_is_an_error_of_the_row(source: str) -> None:
    assert tried(source) == ""


@pytest.mark.parametrize(
    "source",
    [
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% for x in [[[]]] recursive %}{{ loop([x]) }}{% endfor %}",
        "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}",
        "{{ " + "[" * 3000 + "]" * 3000 + " }}",
        "{% if 1 %}" * 200 + "{% endif %}" * 200,
    ],
    ids=["macro", "loop", "parentheses", "lists", "blocks"],
)
def test_endless_recursion_is_refused(source: str) -> None:
    assert tried(source) == ""


@pytest.mark.parametrize("tag", ["include 'x'", "extends 'x'", "import 'os' as os", "debug"])
def test_a_template_loads_nothing(tag: str) -> None:
    assert tried(f"{{% {tag} %}}") == ""


def test_dict_offers_templates_what_transformers_lets_them_use() -> None:
    assert tried("{{ dict(a=1) | tojson }}") == '{"a": 1}'
    assert tried("{{ dict.fromkeys(['a', 'b'], 1) | tojson }}") == '{"a": 1, "b": 1}'
