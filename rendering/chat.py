"""Render a row's chat and find what of its text is trained: what the assistant says.

A template may mark that with `{% generation %}`. Where it does not, an answer is the difference
between the chat up to it, with the generation prompt, and the chat including it. Some templates
rewrite earlier turns; rows for those are split into one example for each answer, so that the model
is trained on what it sees at inference (`split_answers`).
"""

import os
from dataclasses import dataclass
from datetime import date

from rendering.conversation import is_trained, messages_of, tools_of
from rendering.template import ChatTemplate, Message, RenderError, Span, Tools
from rendering.tokenizer import Tokenizer
from rendering.tool_calls import Json

_NOWHERE = (0, 0)
_NO_TEXT = "\u0002"  # in place of an answer: no template begins one with it


class HistoryRewritten(RenderError):
    """The template renders an answer differently once other messages follow it."""


@dataclass(frozen=True)
class RenderedChat:
    """A chat as the model reads it."""

    text: str
    answers: tuple[Span, ...]  # one for each message of the assistant, in order
    trained: tuple[Span, ...]  # those of them that are learnt
    only_in_prompts: str = ""  # what answers are asked for with, and the chat lacks: "<think>"


def render_chat(tokenizer: Tokenizer, row: Json, today: date) -> RenderedChat:
    """Render a row's messages; raise RenderError for what the template refuses."""
    chat, only_in_prompts = _Chat.of(tokenizer, row, today), ""
    if chat.template.marks_answers:
        text, spans = chat.marked()
    else:
        text, spans, only_in_prompts = chat.compared()
    weights = [is_trained(m) for m in row["messages"] if m["role"] == "assistant"]
    if len(weights) != len(spans):
        raise RenderError(
            f"the chat has {len(weights)} messages of the assistant, and the template marks "
            f"{len(spans)} with {{% generation %}}"
        )
    trained = (span for span, weight in zip(spans, weights, strict=True) if weight)
    return RenderedChat(text, tuple(spans), tuple(trained), only_in_prompts)


def render_prompt(tokenizer: Tokenizer, row: Json, today: date) -> str:
    """Render a row's messages up to where the model's next answer begins."""
    return _Chat.of(tokenizer, row, today).text(prompt=True)


def render_text(tokenizer: Tokenizer, row: Json, today: date) -> str:
    """Render all messages of a row."""
    return _Chat.of(tokenizer, row, today).text()


def rewrites_history(tokenizer: Tokenizer, row: Json, today: date) -> bool:
    """Whether the template renders a trained answer differently once other messages follow."""
    chat = _Chat.of(tokenizer, row, today)
    if not chat.template.marks_answers:
        try:
            chat.compared()
        except HistoryRewritten:
            return True
        return False
    trained = [n for n, message in enumerate(row["messages"]) if is_trained(message)]
    if trained[-1:] == [len(row["messages"]) - 1]:
        trained.pop()  # nothing follows it
    whole, _ = chat.marked()
    return any(not whole.startswith(chat.until_end_of(n)) for n in trained)


def split_answers(row: Json) -> list[Json]:
    """Return one chat for each trained answer, which ends with it and trains it alone."""
    messages: list[Message] = row["messages"]
    places = [n for n, message in enumerate(messages) if is_trained(message)]
    return [row | {"messages": [*map(_untrained, messages[:n]), messages[n]]} for n in places]


def count_answers(row: Json) -> int:
    """Return how many chats `split_answers` makes of a row."""
    return sum(map(is_trained, row["messages"]))


def _untrained(message: Message) -> Message:
    return message | {"weight": 0} if message["role"] == "assistant" else message


@dataclass(frozen=True)
class _Chat:
    """A chat on its way through a template."""

    template: ChatTemplate
    messages: list[Message]
    tools: Tools
    today: date
    is_trained: list[bool]

    @classmethod
    def of(cls, tokenizer: Tokenizer, row: Json, today: date) -> "_Chat":
        tools = tools_of(row)
        messages = messages_of(row, tokenizer.call_form(tools))
        trained = [is_trained(message) for message in row["messages"]]
        return cls(tokenizer.template(tools), messages, tools, today, trained)

    def text(self, count: int | None = None, *, prompt: bool = False) -> str:
        """Render the first ``count`` messages, or all."""
        messages = self.messages[:count]
        return self.template.render(messages, self.tools, self.today, prompt=prompt)[0]

    def marked(self, count: int | None = None) -> tuple[str, list[Span]]:
        """Render with the spans that the template marks."""
        return self.template.render(self.messages[:count], self.tools, self.today)

    def until_end_of(self, number: int) -> str:
        """Render up to the end of an answer, where nothing follows it."""
        text, spans = self.marked(number + 1)
        return text[: spans[-1][1]] if spans else text

    def compared(self) -> tuple[str, list[Span], str]:
        """Render, and find each answer by what it adds; the third is `only_in_prompts`."""
        wanted = [number for number, is_trained in enumerate(self.is_trained) if is_trained]
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
        said = (n for n, message in enumerate(self.messages) if message["role"] == "assistant")
        # Any other answer may have been rewritten.
        return whole, [found.get(number, _NOWHERE) for number in said], only_in_prompts

    def _answer(self, whole: str, number: int) -> tuple[Span, str]:
        """The span of an answer in the whole text, and what its prompt has and it lacks."""
        before, until = self.text(number, prompt=True), self.text(number + 1)
        if whole.startswith(until):
            if until.startswith(before):
                return (len(before), len(until)), ""
            start = self._start(before, number)
            if until.startswith(before[:start]) and start > len(self.text(number)):
                return (start, len(until)), before[start:]
        raise HistoryRewritten(
            "the model's chat template rewrites earlier turns, so the assistant's answer cannot be "
            "told apart"
        )

    def _start(self, prompt: str, number: int) -> int:
        """Find where an answer begins whose prompt goes on, say with "<think>"."""
        probe = [*self.messages[:number], {"role": "assistant", "content": _NO_TEXT}]
        text, _ = self.template.render(probe, self.tools, self.today)
        return len(os.path.commonprefix([prompt, text]))  # noqa: RUF071 - any characters

    def _composed(self, whole: str, number: int) -> tuple[str, Span]:
        """The prompt of the last answer as at inference, and after it what the answer adds.

        Some templates render the prompt otherwise once it is answered: Mistral's keep the system
        message only while the last question is open. The answer begins where the text before it
        ends as the prompt does.
        """
        before = self.text(number, prompt=True)
        probe = [*self.messages[:number], {"role": "assistant", "content": _NO_TEXT}]
        text, _ = self.template.render(probe, self.tools, self.today)
        common = os.path.commonprefix([whole, text])  # noqa: RUF071 - any characters
        asked = self.messages[number - 1]["content"].strip() if number else ""
        for end in range(len(common), 0, -1):
            if asked and before.endswith(common[:end][-len(asked) - 1 :]):
                shared = _shared_end(before, common[:end])
                if asked in before[len(before) - shared :]:
                    return before + whole[end:], (len(before), len(before) + len(whole) - end)
        raise HistoryRewritten(
            "the model's chat template renders the question differently once it is answered, so "
            "the assistant's answer cannot be told apart"
        )


def _shared_end(one: str, other: str) -> int:
    """Count the characters that two texts end with alike."""
    pairs = zip(reversed(one), reversed(other), strict=False)
    alike = next((n for n, (a, b) in enumerate(pairs) if a != b), None)
    return min(len(one), len(other)) if alike is None else alike
