"""Render chats with a model's chat template in a Jinja sandbox.

A template is an untrusted Jinja program that comes with the model: it runs in Jinja's sandbox, sees
plain JSON only, and its exceptions become `RenderError`. The environment equals that of
transformers' `apply_chat_template`, so that training matches inference.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from typing import Any, NoReturn

from jinja2 import Template, nodes
from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

Span = tuple[int, int]  # characters [start, end)
Message = dict[str, Any]
Tools = list[dict[str, Any]] | None

_MARKS = "rekindle_generation_marks"  # name of the marks in the context of a render
_MARK = "_mark"  # name of the method that `{% generation %}` calls
_BEGIN, _END = "\ue000rekindle:answer\ue001", "\ue000rekindle:end\ue001"  # in no other text
_FENCE = re.compile(f"{_BEGIN}|{_END}")


class RenderError(ValueError):
    """The model's template cannot render a chat; the message says why."""


@dataclass
class _Marks:
    """Spans of `{% generation %}` blocks in the text rendered so far."""

    fenced: bool = False  # put `_BEGIN` and `_END` around the blocks' text
    rendered: int = 0  # characters
    spans: list[Span] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)  # of the spans

    def record(self, text: str) -> str:
        """Record a block's text, which is printed next; return what to print."""
        self.spans.append((self.rendered, self.rendered + len(text)))
        self.texts.append(text)
        return f"{_BEGIN}{text}{_END}" if self.fenced else text

    def are_exact(self, rendered: str) -> bool:
        """Return whether each block was printed at its recorded place; macros move blocks."""
        pairs = zip(self.spans, self.texts, strict=True)
        return all(rendered[start:end] == text for (start, end), text in pairs)


@dataclass(frozen=True)
class ChatTemplate:
    """A chat template with the special tokens that it may print, such as ``bos_token``."""

    source: str
    special_tokens: Mapping[str, str]

    @cached_property
    def marks_answers(self) -> bool:
        """Whether the template marks answers with `{% generation %}`."""
        calls = _ENVIRONMENT.parse(self.source).find_all(nodes.ExtensionAttribute)
        return any(call.name == _MARK for call in calls)

    def require_valid(self) -> None:
        """Raise RenderError if the source is not valid Jinja."""
        try:
            _ = self._compiled
        except TemplateSyntaxError as error:
            raise RenderError(f"line {error.lineno}: {error.message}") from error
        except Exception as error:
            raise RenderError(f"{type(error).__name__}: {error}") from error

    def render(
        self, messages: list[Message], tools: Tools, today: date, *, prompt: bool = False
    ) -> tuple[str, list[Span]]:
        """Return the text and the spans of marked answers; raise RenderError.

        ``prompt`` ends the text where the model's next answer begins. ``today`` is the date that
        templates print; a resume on another day must render the same text.
        """
        marks = _Marks()
        text = self._render_text(messages, tools, today, prompt, marks)
        if marks.are_exact(text):
            return text, marks.spans
        fenced_text = self._render_text(messages, tools, today, prompt, _Marks(fenced=True))
        return text, _spans_of_fences(fenced_text, text)

    def _render_text(
        self, messages: list[Message], tools: Tools, today: date, prompt: bool, marks: _Marks
    ) -> str:
        pieces: list[str] = []
        try:
            for piece in self._stream(messages, tools, today, prompt, marks):
                pieces.append(piece)
                marks.rendered += len(piece)
        except TemplateError as error:
            raise RenderError(error.message or type(error).__name__) from error
        except Exception as error:
            raise RenderError(f"{type(error).__name__}: {error}") from error
        return "".join(pieces)

    def _stream(
        self, messages: list[Message], tools: Tools, today: date, prompt: bool, marks: _Marks
    ) -> Iterator[str]:
        context = {
            **self.special_tokens,
            "messages": messages,
            "tools": tools,
            "documents": None,
            "add_generation_prompt": prompt,
            "strftime_now": _strftime(today),
            _MARKS: marks,
        }
        return self._compiled.generate(context)

    @cached_property
    def _compiled(self) -> Template:
        return _ENVIRONMENT.from_string(self.source)


def _spans_of_fences(fenced_text: str, text: str) -> list[Span]:
    """Return the spans of blocks in text with fences around them; ``text`` has no fences.

    A macro is printed when it is complete, so positions cannot be counted while it runs.
    """
    spans: list[Span] = []
    length = end = start = 0  # of the text without fences; of the last fence; of an open block
    for fence in _FENCE.finditer(fenced_text):
        length, end = length + fence.start() - end, fence.end()
        if fence.group() == _BEGIN:
            start = length
        else:
            spans.append((start, length))
    if _FENCE.sub("", fenced_text) != text:
        raise RenderError(
            "the template changes what it marks with {% generation %} before it prints it; mark "
            "outside of filters and macros whose text is changed"
        )
    return spans


def _strftime(today: date) -> Callable[[str], str]:
    def strftime_now(pattern: str) -> str:
        return today.strftime(pattern)

    return strftime_now


class _GenerationTag(Extension):
    """The block tag that marks answers, as in transformers."""

    tags = {"generation"}  # noqa: RUF012 - as Jinja declares it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = self.call_method(_MARK, [nodes.ContextReference()])
        return nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _mark(self, context: Context, caller: Callable[[], str]) -> str:
        text, marks = caller(), context.get(_MARKS)
        return marks.record(text) if isinstance(marks, _Marks) else text


class _PlainDict:
    """A `dict` without attributes, through which a template could leave the sandbox."""

    def __call__(self, *pairs: Any, **members: Any) -> dict[str, Any]:  # noqa: ANN401
        return dict(*pairs, **members)

    def fromkeys(self, names: Iterable[Any], value: Any = None) -> dict[Any, Any]:  # noqa: ANN401
        """Return `dict.fromkeys`, which transformers lets templates call."""
        return dict.fromkeys(names, value)


class _PublicNamespace(Namespace):
    """A `namespace` without names that begin with an underscore, for the same reason."""

    def __init__(*args: Any, **members: Any) -> None:  # noqa: ANN401 - "self" may be a member
        self, *pairs = args
        for name in (attributes := dict(*pairs, **members)):
            _refuse_underscore(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:  # noqa: ANN401
        _refuse_underscore(name)
        super().__setitem__(name, value)


def _refuse_underscore(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"A namespace must not have a member {name!r}.")


def _raise_exception(message: object) -> NoReturn:
    raise TemplateError(str(message))


def _tojson(
    value: Any,  # noqa: ANN401 - any JSON
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Serialize to JSON without Jinja's HTML escapes."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _build_environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_GenerationTag, LoopControlExtension],
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["dict"] = _PlainDict()
    environment.globals["namespace"] = _PublicNamespace
    return environment


_ENVIRONMENT = _build_environment()
