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
from rendering.templates.conversation import is_trained, messages_of, tools_of
from rendering.templates.tool_calls import Json
from rendering.tokenizer import Tokenizer

_NOWHERE = (0, 0)
_NO_TEXT = "\u0002"  # stands for an answer: no template begins one with it
_ALIKE = 3  # equal characters at the end of two texts that are no coincidence
_REWRITTEN = (
    "the model's chat template rewrites earlier turns, so the assistant's answer cannot be told "
    "apart"
)
_HEADER = 64  # maximum characters between a prompt and its answer


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
    def of(cls, tokenizer: Tokenizer, row: Json, today: date) -> "Chat":
        """Return the chat of a row; raise RenderError for an unreadable tool call."""
        tools = tools_of(row)
        messages = messages_of(row, tokenizer.call_form(tools))
        trained = [is_trained(message) for message in row["messages"]]
        return cls(tokenizer.template(tools), messages, tools, today, trained)

    def text(self, count: int | None = None, *, prompt: bool = False) -> str:
        """Render the first ``count`` messages, or all."""
        messages = self.messages[:count]
        return self.template.render(messages, self.tools, self.today, prompt=prompt)[0]

    def rendered(self) -> RenderedChat:
        """Render all messages and find the answers; raise RenderError."""
        return self._rendered_marked() if self.template.marks_answers else self._compared()

    def require_kept_marks(self, whole: str) -> None:
        """Raise HistoryRewritten if a trained, marked answer changes once other messages follow."""
        for number, trained in enumerate(self.is_trained[:-1]):
            if trained and not whole.startswith(self._until_mark(number)):
                raise HistoryRewritten(_REWRITTEN)

    @property
    def _answers(self) -> list[int]:
        """Indexes of the assistant's messages."""
        return [n for n, message in enumerate(self.messages) if message["role"] == "assistant"]

    def _marked(self, count: int | None = None) -> tuple[str, list[Span]]:
        return self.template.render(self.messages[:count], self.tools, self.today)

    def _until_mark(self, number: int) -> str:
        """Return the text up to the end of a marked answer; "" if the template refuses it."""
        try:
            text, spans = self._marked(number + 1)
        except RenderError:
            return ""
        return text[: _merged(spans)[-1][1]] if spans else text

    def _rendered_marked(self) -> RenderedChat:
        text, spans = self._marked()
        marks = self._by_answer(spans)
        learnt = [
            pair for pair in zip(self._answers, marks, strict=True) if self.is_trained[pair[0]]
        ]
        trained = tuple(span for _, parts in learnt for span in parts)
        only_in_prompts = self._left_out(text, learnt[-1][0], learnt[-1][1][0][0]) if learnt else ""
        answers = tuple((parts[0][0], parts[-1][1]) for parts in marks)
        return RenderedChat(text, answers, trained, only_in_prompts)

    def _by_answer(self, spans: list[Span]) -> list[list[Span]]:
        """Return the marked spans of each answer; a template may mark several per answer."""
        wanted = len(self._answers)
        if len(spans) != wanted:
            spans = _merged(spans)
        if len(spans) == wanted:
            return [[span] for span in spans]
        ends = accumulate((self._marks_of(number) for number in self._answers), initial=0)
        groups = [spans[start:end] for start, end in pairwise(ends)]
        if sum(map(len, groups)) == len(spans) and all(groups):
            return groups
        raise RenderError(
            f"the chat has {wanted} messages of the assistant, and the template marks "
            f"{len(spans)} with {{% generation %}}"
        )

    def _marks_of(self, number: int) -> int:
        before = _merged(self._marked(number)[1]) if number else []
        return len(_merged(self._marked(number + 1)[1])) - len(before)

    def _left_out(self, text: str, number: int, start: int) -> str:
        """Return the end of a marked answer's prompt that the text lacks."""
        prompt = self._prompt(number)
        if prompt is None or (alike := _common(text, prompt)) == len(prompt):
            return ""
        alike = min(alike, _common(self._with_no_text(number), prompt))
        return prompt[alike:] if alike >= start else ""

    def _compared(self) -> RenderedChat:
        wanted = [number for number, trained in enumerate(self.is_trained) if trained]
        whole, found = self.text(), {}
        only_in_prompts = ""
        for number in wanted:
            try:
                found[number], extra = self._answer(whole, number)
            except HistoryRewritten:
                if wanted != [len(self.messages) - 1]:
                    raise
                whole, found[number] = self._composed(whole, number)
                extra = ""
            only_in_prompts = only_in_prompts or extra
        # An answer that is not trained may have been rewritten.
        answers = tuple(found.get(number, _NOWHERE) for number in self._answers)
        return RenderedChat(whole, answers, tuple(found.values()), only_in_prompts)

    def _answer(self, whole: str, number: int) -> tuple[Span, str]:
        """Return the span of an answer, and the end of its prompt that the text lacks."""
        until = whole if number + 1 == len(self.messages) else self.text(number + 1)
        if whole.startswith(until):
            before = self._prompt(number)
            if before is None:
                return (_common(until, self._with_no_text(number)), len(until)), ""
            if until.startswith(before):
                return (len(before), len(until)), ""
            start = min(_common(before, self._with_no_text(number)), _common(before, until))
            if start > len(self.text(number)):
                return (start, len(until)), before[start:]
        raise HistoryRewritten(_REWRITTEN)

    def _prompt(self, number: int) -> str | None:
        """Render the prompt of an answer; None if the template cannot."""
        if not number:
            return None
        try:
            return self.text(number, prompt=True)
        except RenderError:
            return None

    def _with_no_text(self, number: int) -> str:
        """Render the chat with a placeholder as its last answer."""
        probe = [*self.messages[:number], {"role": "assistant", "content": _NO_TEXT}]
        return self.template.render(probe, self.tools, self.today)[0]

    def _composed(self, whole: str, number: int) -> tuple[str, Span]:
        """Return the last answer's prompt as at inference followed by the answer, and its span.

        The answer begins after the last text that equals the prompt's end.
        """
        before = self.text(number, prompt=True)
        latest = _common(whole, self._with_no_text(number))  # the answer begins here, or before
        ending = before[-_ALIKE:]
        asked = (self.messages[number - 1]["content"] or "").strip() if number else ""
        earliest = max(latest - _HEADER, whole.rfind(asked, 0, latest) + len(asked))
        end = whole.rfind(ending, max(earliest - _ALIKE, 0), latest) + len(ending)
        if end >= max(earliest, len(ending)) and ending.strip():
            return before + whole[end:], (len(before), len(before) + len(whole) - end)
        raise HistoryRewritten(
            "the model's chat template renders the question differently once it is answered, so "
            "the assistant's answer cannot be told apart"
        )


def _merged(spans: list[Span]) -> list[Span]:
    """Merge adjacent spans."""
    merged: list[Span] = []
    for start, end in spans:
        if merged and merged[-1][1] == start:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return merged


def _common(one: str, other: str) -> int:
    """Return the length of the common prefix."""
    return len(os.path.commonprefix([one, other]))  # noqa: RUF071 - any characters
