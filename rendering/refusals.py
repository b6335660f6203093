"""Explain why a template refuses a chat, and what to change."""

from datetime import date

from rendering.chat import render_text
from rendering.templates.chat_template import Message, RenderError
from rendering.templates.tool_calls import Json
from rendering.tokenizer import Tokenizer


def explain_refusal(tokenizer: Tokenizer, chat: Json, error: RenderError, today: date) -> str:
    """Return the template's message and the smallest change that makes it accept the chat."""
    for remedy, changed in _remedies(chat["messages"]):
        try:
            render_text(tokenizer, chat | {"messages": changed}, today)
        except RenderError:
            continue
        return f"the model's chat template refuses the row ({error}): {remedy}"
    return (
        f"the model's chat template refuses the row ({error}): change the row, or give the model "
        "another chat_template.jinja and stage it again"
    )


def _remedies(messages: list[Message]) -> list[tuple[str, list[Message]]]:
    """Return changed chats to try, each with its advice."""
    without_system = [m for m in messages if m["role"] not in ("system", "developer")]
    without_results = [m for m in messages if m["role"] not in ("tool", "function")]
    callless = [{n: v for n, v in m.items() if n != "tool_calls"} for m in without_results]
    single = [_with_one_call(m) for m in messages]
    tries = [
        (
            "it takes no system message here; put that text before the first user message",
            without_system,
        ),
        (
            "it takes user and assistant in turns only; join messages of one role",
            _join_same_roles(messages),
        ),
        (
            "it takes no system message, and user and assistant in turns only; put the system text "
            "before the first user message, and join messages of one role",
            _join_same_roles(without_system),
        ),
        ("it takes one tool call a message; leave the row out, or split the calls", single),
        ("it takes no tool calls; leave the row out, or write them as text", callless),
        (
            "it takes no tool calls; leave the row out, or write them as text",
            _join_same_roles(callless),
        ),
    ]
    return [(remedy, changed) for remedy, changed in tries if changed and changed != messages]


def _join_same_roles(messages: list[Message]) -> list[Message]:
    """Join neighbouring messages of the same role."""
    joined: list[Message] = []
    for message in messages:
        if joined and joined[-1]["role"] == message["role"]:
            joined[-1] = joined[-1] | {"content": "Joined."}
        else:
            joined.append(message)
    return joined


def _with_one_call(message: Message) -> Message:
    calls = message.get("tool_calls")
    return message | {"tool_calls": calls[:1]} if calls else message
