"""Find the assistant's answers in a chat that a template renders.

An answer is what the chat has beyond its prompt: the messages before it, rendered as a program
renders them that asks the model. Where a chat's text does not begin with that prompt, one of three
things is done, so that what is trained is what the model sees when it is asked:

- The prompt goes on ("<think>") and the answer leaves that out: the answer begins where both part.
- The prompt is worded otherwise (Mistral's system message vanishes once it is answered): the text
  becomes the prompt with the answer behind it. This is done for a chat's last message only.
- The template cannot ask for the answer, as for a greeting before any question: the answer begins
  where another answer would differ.
"""

import os
from dataclasses import dataclass
from datetime import date
from itertools import accumulate, pairwise

from rendering.conversation import is_trained, messages_of, tools_of
from rendering.template import ChatTemplate, Message, RenderError, Span, Tools
from rendering.tokenizer import Tokenizer
from rendering.tool_calls import Json

_NOWHERE = (0, 0)
_NO_TEXT = "\u0002"  # in place of an answer: no template begins one with it
_ALIKE = 3  # characters with which two texts must end alike, so that it is no coincidence
_REWRITTEN = (
    "the model's chat template rewrites earlier turns, so the assistant's answer cannot be told "
    "apart"
)
_HEADER = 64  # characters that may lie between the end of a prompt and an answer


class HistoryRewritten(RenderError):
    """The template renders an answer differently once other messages follow it."""


@dataclass(frozen=True)
class RenderedChat:
    """A chat as the model reads it."""

    text: str
    answers: tuple[Span, ...]  # one for each message of the assistant, in order
    trained: tuple[Span, ...]  # those of them that are learnt, without what lies between marks
    only_in_prompts: str = ""  # what answers are asked for with, and the chat lacks: "<think>"


@dataclass(frozen=True)
class Chat:
    """A chat on its way through a template."""

    template: ChatTemplate
    messages: list[Message]
    tools: Tools
    today: date
    is_trained: list[bool]

    @classmethod
    def of(cls, tokenizer: Tokenizer, row: Json, today: date) -> "Chat":
        """The chat of a row; raise RenderError for a call that cannot be read."""
        tools = tools_of(row)
        messages = messages_of(row, tokenizer.call_form(tools))
        trained = [is_trained(message) for message in row["messages"]]
        return cls(tokenizer.template(tools), messages, tools, today, trained)

    def text(self, count: int | None = None, *, prompt: bool = False) -> str:
        """Render the first ``count`` messages, or all."""
        messages = self.messages[:count]
        return self.template.render(messages, self.tools, self.today, prompt=prompt)[0]

    def rendered(self) -> RenderedChat:
        """Render all messages, and find the answers; raise RenderError."""
        return self._rendered_marked() if self.template.marks_answers else self._compared()

    def require_kept_marks(self, whole: str) -> None:
        """Raise HistoryRewritten where a trained, marked answer changes once others follow."""
        for number, trained in enumerate(self.is_trained[:-1]):
            if trained and not whole.startswith(self._until_mark(number)):
                raise HistoryRewritten(_REWRITTEN)

    @property
    def _answers(self) -> list[int]:
        """Places of the assistant's messages."""
        return [n for n, message in enumerate(self.messages) if message["role"] == "assistant"]

    def _marked(self, count: int | None = None) -> tuple[str, list[Span]]:
        return self.template.render(self.messages[:count], self.tools, self.today)

    def _until_mark(self, number: int) -> str:
        """The chat up to the end of a marked answer; nothing where that alone is refused."""
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
        """The marks of each answer. A template may set several, such as one for the last token."""
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
        """What the prompt of a marked answer ends with, and the text lacks."""
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
        """The span of an answer in the whole text, and what its prompt has and it lacks."""
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
        """What asks for an answer; None where nothing can ask for it."""
        if not number:
            return None
        try:
            return self.text(number, prompt=True)
        except RenderError:
            return None

    def _with_no_text(self, number: int) -> str:
        """The chat with another answer at its end."""
        probe = [*self.messages[:number], {"role": "assistant", "content": _NO_TEXT}]
        return self.template.render(probe, self.tools, self.today)[0]

    def _composed(self, whole: str, number: int) -> tuple[str, Span]:
        """The prompt of the last answer as at inference, and after it what the answer adds.

        The answer begins where the text before it ends as the prompt does.
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
    """Spans that touch, as one."""
    merged: list[Span] = []
    for start, end in spans:
        if merged and merged[-1][1] == start:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return merged


def _common(one: str, other: str) -> int:
    """Count the characters that two texts begin with alike."""
    return len(os.path.commonprefix([one, other]))  # noqa: RUF071 - any characters
