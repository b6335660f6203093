"""Render a row's chat and find the trained text: the assistant's answers.

A template may mark answers with `{% generation %}`; otherwise `rendering.answers` compares
renderings. Some templates rewrite earlier turns; rows for those are split into one example per
answer, so that training matches inference (`split_answers`).
"""

from datetime import date

from rendering.answers import Chat, HistoryRewritten, RenderedChat
from rendering.templates.chat_template import Message
from rendering.templates.conversation import is_trained
from rendering.templates.tool_calls import Json
from rendering.tokenizer import Tokenizer


def render_chat(tokenizer: Tokenizer, row: Json, today: date) -> RenderedChat:
    """Render a row's messages; raise RenderError for what the template refuses."""
    return Chat.from_row(tokenizer, row, today).render()


def render_prompt(tokenizer: Tokenizer, row: Json, today: date) -> str:
    """Render a row's messages up to the start of the model's next answer."""
    return Chat.from_row(tokenizer, row, today).render_text(prompt=True)


def render_text(tokenizer: Tokenizer, row: Json, today: date) -> str:
    """Render all messages of a row."""
    return Chat.from_row(tokenizer, row, today).render_text()


def render_checked_chat(tokenizer: Tokenizer, row: Json, today: date) -> RenderedChat:
    """Render as `render_chat`; raise HistoryRewritten for marked answers that change too."""
    chat = Chat.from_row(tokenizer, row, today)
    rendered = chat.render()
    if chat.template.marks_answers:
        chat.require_intact_marks(rendered.text)
    return rendered


def rewrites_history(tokenizer: Tokenizer, row: Json, today: date) -> bool:
    """Return whether a trained answer renders differently once other messages follow."""
    try:
        render_checked_chat(tokenizer, row, today)
    except HistoryRewritten:
        return True
    return False


def trained_indexes(row: Json) -> list[int]:
    """Return the indexes of the trained messages."""
    return [number for number, message in enumerate(row["messages"]) if is_trained(message)]


def split_answers(row: Json) -> list[Json]:
    """Return one chat per trained answer, which ends with it and trains only it."""
    messages: list[Message] = row["messages"]
    indexes = trained_indexes(row)
    return [row | {"messages": [*map(_without_weight, messages[:n]), messages[n]]} for n in indexes]


def count_answers(row: Json) -> int:
    """Return how many chats `split_answers` makes of a row."""
    return len(trained_indexes(row))


def _without_weight(message: Message) -> Message:
    return message | {"weight": 0} if message["role"] == "assistant" else message
