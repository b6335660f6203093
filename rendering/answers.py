"""Find the spans of the assistant's answers in a rendered chat.

An answer is the text after its prompt, which is the earlier messages rendered as at inference. If
the chat's text does not begin with that prompt, one of three rules applies, so that training
matches inference:

- The prompt ends with text that the answer lacks ("<think>"): the answer begins where both differ.
- The prompt has other text (Mistral omits the system message once it is answered): the text becomes
  the prompt followed by the answer. This applies to a chat's last message only.
- The template cannot render the prompt, as for a greeting before any question: the answer begins
  where a different answer would differ.
"""

import os
from dataclasses import dataclass
from datetime import date
from itertools import accumulate, pairwise

from rendering.templates.chat_template import ChatTemplate, Message, RenderError, Span, Tools
from rendering.templates.conversation import is_trained, template_messages, template_tools
from rendering.templates.tool_calls import Json
from rendering.tokenizer import Tokenizer

_EMPTY_SPAN = (0, 0)
_PLACEHOLDER = "\u0002"  # stands for an answer: no template begins one with it
_MIN_MATCH = 3  # equal characters at the end of two texts that are no coincidence
_REWRITTEN = (
    "the model's chat template rewrites earlier turns, so the assistant's answer cannot be located"
)
_MAX_HEADER = 64  # maximum characters between a prompt and its answer


class HistoryRewritten(RenderError):
    """The template renders an answer differently once other messages follow it."""


@dataclass(frozen=True)
class RenderedChat:
    """A rendered chat with the spans of its answers."""

    text: str
    answers: tuple[Span, ...]  # one for each message of the assistant, in order
    trained: tuple[Span, ...]  # the trained ones, without text between marks
    only_in_prompts: str = ""  # end of prompts that the chat lacks, such as "<think>"


@dataclass(frozen=True)
class Chat:
    """A row's chat with the template to render it."""

    template: ChatTemplate
    messages: list[Message]
    tools: Tools
    today: date
    is_trained: list[bool]

    @classmethod
    def from_row(cls, tokenizer: Tokenizer, row: Json, today: date) -> "Chat":
        """Return the chat of a row; raise RenderError for an unreadable tool call."""
        tools = template_tools(row)
        messages = template_messages(row, tokenizer.call_form(tools))
        trained = [is_trained(message) for message in row["messages"]]
        return cls(tokenizer.template(tools), messages, tools, today, trained)

    def render_text(self, count: int | None = None, *, prompt: bool = False) -> str:
        """Render the first ``count`` messages, or all."""
        messages = self.messages[:count]
        return self.template.render(messages, self.tools, self.today, prompt=prompt)[0]

    def render(self) -> RenderedChat:
        """Render all messages and find the answers; raise RenderError."""
        return (
            self._render_with_marks()
            if self.template.marks_answers
            else self._render_by_comparison()
        )

    def require_intact_marks(self, text: str) -> None:
        """Raise HistoryRewritten if a trained, marked answer changes once other messages follow."""
        for number, trained in enumerate(self.is_trained[:-1]):
            if trained and not text.startswith(self._text_until_mark(number)):
                raise HistoryRewritten(_REWRITTEN)

    @property
    def _answers(self) -> list[int]:
        """Indexes of the assistant's messages."""
        return [n for n, message in enumerate(self.messages) if message["role"] == "assistant"]

    def _render_marked(self, count: int | None = None) -> tuple[str, list[Span]]:
        return self.template.render(self.messages[:count], self.tools, self.today)

    def _text_until_mark(self, number: int) -> str:
        """Return the text up to the end of a marked answer; "" if the template refuses it."""
        try:
            text, spans = self._render_marked(number + 1)
        except RenderError:
            return ""
        return text[: _merge_spans(spans)[-1][1]] if spans else text

    def _render_with_marks(self) -> RenderedChat:
        text, spans = self._render_marked()
        marks = self._group_by_answer(spans)
        trained_marks = [
            pair for pair in zip(self._answers, marks, strict=True) if self.is_trained[pair[0]]
        ]
        trained = tuple(span for _, parts in trained_marks for span in parts)
        only_in_prompts = (
            self._prompt_only_text(text, trained_marks[-1][0], trained_marks[-1][1][0][0])
            if trained_marks
            else ""
        )
        answers = tuple((parts[0][0], parts[-1][1]) for parts in marks)
        return RenderedChat(text, answers, trained, only_in_prompts)

    def _group_by_answer(self, spans: list[Span]) -> list[list[Span]]:
        """Return the marked spans of each answer; a template may mark several per answer."""
        expected = len(self._answers)
        if len(spans) != expected:
            spans = _merge_spans(spans)
        if len(spans) == expected:
            return [[span] for span in spans]
        ends = accumulate((self._count_marks(number) for number in self._answers), initial=0)
        groups = [spans[start:end] for start, end in pairwise(ends)]
        if sum(map(len, groups)) == len(spans) and all(groups):
            return groups
        raise RenderError(
            f"the chat has {expected} messages of the assistant, and the template marks "
            f"{len(spans)} with {{% generation %}}"
        )

    def _count_marks(self, number: int) -> int:
        before = _merge_spans(self._render_marked(number)[1]) if number else []
        return len(_merge_spans(self._render_marked(number + 1)[1])) - len(before)

    def _prompt_only_text(self, text: str, number: int, start: int) -> str:
        """Return the end of a marked answer's prompt that the text lacks."""
        prompt = self._render_prompt(number)
        if prompt is None or (common := _common_prefix_length(text, prompt)) == len(prompt):
            return ""
        common = min(common, _common_prefix_length(self._render_placeholder(number), prompt))
        return prompt[common:] if common >= start else ""

    def _render_by_comparison(self) -> RenderedChat:
        trained_indexes = [number for number, trained in enumerate(self.is_trained) if trained]
        text, spans = self.render_text(), {}
        only_in_prompts = ""
        for number in trained_indexes:
            try:
                spans[number], extra = self._find_answer(text, number)
            except HistoryRewritten:
                if trained_indexes != [len(self.messages) - 1]:
                    raise
                text, spans[number] = self._compose_last_answer(text, number)
                extra = ""
            only_in_prompts = only_in_prompts or extra
        # An answer that is not trained may have been rewritten.
        answers = tuple(spans.get(number, _EMPTY_SPAN) for number in self._answers)
        return RenderedChat(text, answers, tuple(spans.values()), only_in_prompts)

    def _find_answer(self, text: str, number: int) -> tuple[Span, str]:
        """Return the span of an answer, and the end of its prompt that the text lacks."""
        until = text if number + 1 == len(self.messages) else self.render_text(number + 1)
        if text.startswith(until):
            before = self._render_prompt(number)
            if before is None:
                return (
                    _common_prefix_length(until, self._render_placeholder(number)),
                    len(until),
                ), ""
            if until.startswith(before):
                return (len(before), len(until)), ""
            start = min(
                _common_prefix_length(before, self._render_placeholder(number)),
                _common_prefix_length(before, until),
            )
            if start > len(self.render_text(number)):
                return (start, len(until)), before[start:]
        raise HistoryRewritten(_REWRITTEN)

    def _render_prompt(self, number: int) -> str | None:
        """Render the prompt of an answer; None if the template cannot."""
        if not number:
            return None
        try:
            return self.render_text(number, prompt=True)
        except RenderError:
            return None

    def _render_placeholder(self, number: int) -> str:
        """Render the chat with a placeholder as its last answer."""
        probe = [*self.messages[:number], {"role": "assistant", "content": _PLACEHOLDER}]
        return self.template.render(probe, self.tools, self.today)[0]

    def _compose_last_answer(self, text: str, number: int) -> tuple[str, Span]:
        """Return the last answer's prompt as at inference followed by the answer, and its span.

        The answer begins after the last text that equals the prompt's end.
        """
        before = self.render_text(number, prompt=True)
        # The answer begins here, or before.
        latest = _common_prefix_length(text, self._render_placeholder(number))
        ending = before[-_MIN_MATCH:]
        question = (self.messages[number - 1]["content"] or "").strip() if number else ""
        earliest = max(latest - _MAX_HEADER, text.rfind(question, 0, latest) + len(question))
        end = text.rfind(ending, max(earliest - _MIN_MATCH, 0), latest) + len(ending)
        if end >= max(earliest, len(ending)) and ending.strip():
            return before + text[end:], (len(before), len(before) + len(text) - end)
        raise HistoryRewritten(
            "the model's chat template renders the question differently once it is answered, so "
            "the assistant's answer cannot be located"
        )


def _merge_spans(spans: list[Span]) -> list[Span]:
    """Merge adjacent spans."""
    merged: list[Span] = []
    for start, end in spans:
        if merged and merged[-1][1] == start:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return merged


def _common_prefix_length(first: str, second: str) -> int:
    """Return the length of the common prefix."""
    return len(os.path.commonprefix([first, second]))  # noqa: RUF071 - any characters
