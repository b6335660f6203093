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


class HistoryRewritten(RenderError):
    """The template renders an answer differently once other messages follow it."""


@dataclass(frozen=True)
class RenderedChat:
    """A chat as the model reads it."""

    text: str
    answers: tuple[Span, ...]  # one for each message of the assistant, in order
    trained: tuple[Span, ...]  # those of them that are learnt


def render_chat(tokenizer: Tokenizer, row: Json, today: date) -> RenderedChat:
    """Render a row's messages; raise RenderError for what the template refuses."""
    chat = _Chat.of(tokenizer, row, today)
    text, spans = chat.marked() if chat.template.marks_answers else chat.compared()
    weights = [is_trained(m) for m in row["messages"] if m["role"] == "assistant"]
    if len(weights) != len(spans):
        raise RenderError(
            f"the chat has {len(weights)} messages of the assistant, and the template marks "
            f"{len(spans)} with {{% generation %}}"
        )
    trained = (span for span, weight in zip(spans, weights, strict=True) if weight)
    return RenderedChat(text, tuple(spans), tuple(trained))


def render_prompt(tokenizer: Tokenizer, row: Json, today: date) -> str:
    """Render a row's messages up to where the model's next answer begins."""
    return _Chat.of(tokenizer, row, today).text(prompt=True)


def render_text(tokenizer: Tokenizer, row: Json, today: date) -> str:
    """Render a row's messages, whoever says them."""
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

    def compared(self) -> tuple[str, list[Span]]:
        """Render, and find each answer by what it adds."""
        whole = self.text()
        spans = []
        for number, message in enumerate(self.messages):
            if message["role"] != "assistant":
                continue
            is_wanted = self.is_trained[number]  # any other may have been rewritten
            spans.append(self._answer(whole, number) if is_wanted else _NOWHERE)
        return whole, spans

    def _answer(self, whole: str, number: int) -> Span:
        before, until = self.text(number, prompt=True), self.text(number + 1)
        if whole.startswith(until):
            if until.startswith(before):
                return len(before), len(until)
            # Some templates open an answer with more than they keep of it, such as "<think>".
            begun = self.text(number)
            common = os.path.commonprefix([before, until])  # noqa: RUF071 - any characters
            if begun != before and until.startswith(begun) and len(common) >= len(begun):
                return len(common), len(until)
        raise HistoryRewritten(
            "the model's chat template rewrites earlier turns, so the assistant's answer cannot be "
            "told apart"
        )
