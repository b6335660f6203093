"""Convert turns and messages of other programs to chat messages."""

import json
from collections.abc import Sequence
from typing import Any

from rekindle.cli.imports.members import (
    Json,
    RowMembers,
    RowSkipped,
    has_value,
    parse_json,
    read_weight,
)

Messages = list[Json]

_ROLES = {
    "system": "system",
    "developer": "developer",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "assistant": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "function_call": "call",
    "function-call": "call",
    "tool_call": "call",
    "observation": "tool",
    "function_response": "tool",
    "tool_response": "tool",
    "function": "tool",
    "tool": "tool",
}
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")


def convert_turns(turns: object, dropped: set[str]) -> Messages:
    """Return the messages of a ShareGPT conversation up to its last answer."""
    if not isinstance(turns, list):
        raise RowSkipped("`conversations` is no list")
    messages = convert_messages(turns, "conversations", dropped) if turns else []
    while messages and messages[-1]["role"] != "assistant":
        messages.pop()
        dropped.add("conversations[] after the last answer")
    require_answer(messages)
    return messages


def convert_messages(
    value: object, name: str, dropped: set[str], earlier: Sequence[Json] = ()
) -> Messages:
    """Return the messages of a list or of one message; ``earlier`` holds those before it."""
    turns = [value] if isinstance(value, dict) else value
    if not isinstance(turns, list) or not turns:
        raise RowSkipped(f"`{name}` is no list of messages")
    messages: Messages = []
    for turn in turns:
        if not isinstance(turn, dict):
            raise RowSkipped(f"a turn of `{name}` is no object")
        members = RowMembers(turn, f"{name}[].")
        messages.append(_convert_message(members, [*earlier, *messages], dropped))
        dropped.update(members.unread_names())
    return messages


def simple_message(role: str, content: str) -> Json:
    """Return a message with role and content only."""
    return {"role": role, "content": content}


def require_answer(messages: Messages) -> None:
    """Raise RowSkipped if no answer would be trained."""
    weights = [m.get("weight", 1) for m in messages if m["role"] == "assistant"]
    if not weights:
        raise RowSkipped("no message is the assistant's")
    if not any(weights):
        raise RowSkipped("every answer has weight 0")


def _convert_message(turn: RowMembers, earlier: Messages, dropped: set[str]) -> Json:
    sender = turn.read_first("from", "role")
    role = _ROLES.get(sender.lower()) if isinstance(sender, str) else None
    if role is None:
        raise RowSkipped(f"a turn is from {sender!r:.40}, which is no role that is known")
    weight = read_weight(turn)
    message: Json
    if role == "call":
        message = {
            "role": "assistant",
            "content": "",
            "tool_calls": _parse_calls(turn, earlier, dropped),
        }
    elif role == "tool":
        message = _tool_result(turn, earlier)
    else:
        message = _content_message(turn, role, earlier, dropped)
    if has_value(name := turn.read("name")) and role != "tool":
        if not isinstance(name, str):
            raise RowSkipped("`name` is no text")
        message["name"] = name
    if message["role"] == "assistant":
        return message if weight is None else message | {"weight": weight}
    if weight:
        dropped.add(f"weight of messages of role {role}")
    return message


def _content_message(turn: RowMembers, role: str, earlier: Messages, dropped: set[str]) -> Json:
    calls = _read_calls(turn, earlier, dropped) if role == "assistant" else []
    content = turn.read_first("value", "content")
    if isinstance(content, list) and content:
        message: Json = {"role": role, "content": _join_text_parts(content)}
    else:
        text = (
            turn.read_optional_text("value", "content")
            if calls
            else turn.read_text("value", "content")
        )
        message = simple_message(role, text)
    if calls:
        message["tool_calls"] = calls
    if role == "assistant" and (reasoning := turn.read_optional_text(*_THOUGHTS)):
        message["reasoning_content"] = reasoning
    return message


def _join_text_parts(parts: list[Any]) -> str:
    for part in parts:
        if not isinstance(part, dict) or part.get("type") != "text":
            raise RowSkipped("a message has parts that are no text")
        if not isinstance(part.get("text"), str):
            raise RowSkipped("a message has parts that are no text")
    text = "".join(part["text"] for part in parts)
    if not text.strip():
        raise RowSkipped("`content` is empty")
    return text


def _tool_result(turn: RowMembers, earlier: Messages) -> Json:
    """Return a tool's result, for the call that it names or the first one without a result."""
    content = turn.read_first("value", "content")
    if not isinstance(content, str | None):
        raise RowSkipped("what a tool answered is no text")
    calls = [call["id"] for message in earlier for call in message.get("tool_calls", ())]
    answered_ids = {message.get("tool_call_id") for message in earlier}
    named_call = turn.read_optional_text("tool_call_id")
    if named_call and named_call not in calls:
        raise RowSkipped("a tool's result names a call that is not before it")
    open_calls = [call for call in calls if call not in answered_ids]
    if not named_call and not open_calls:
        raise RowSkipped("a tool's result has no call before it")
    turn.read("name")  # the call has it
    return simple_message("tool", content or "") | {"tool_call_id": named_call or open_calls[0]}


def _parse_calls(turn: RowMembers, earlier: Messages, dropped: set[str]) -> Messages:
    """Return tool calls that a turn holds as JSON text."""
    document = parse_json(turn.read_text("value", "content"), "a call of a tool")
    listed = document if isinstance(document, list) and document else [document]
    return [
        _convert_call(call, None, f"call_{len(earlier)}_{n}", dropped)
        for n, call in enumerate(listed)
    ]


def _read_calls(turn: RowMembers, earlier: Messages, dropped: set[str]) -> Messages:
    """Return tool calls in OpenAI's current or older form."""
    calls, older = turn.read("tool_calls"), turn.read("function_call")
    listed = [*([older] if has_value(older) else []), *(calls if isinstance(calls, list) else [])]
    if has_value(calls) and not isinstance(calls, list):
        raise RowSkipped("`tool_calls` is no list")
    converted = []
    for number, call in enumerate(listed):
        function = call.get("function", call) if isinstance(call, dict) else call
        call_id = call.get("id") if isinstance(call, dict) else None
        converted.append(_convert_call(function, call_id, f"call_{len(earlier)}_{number}", dropped))
    return converted


def _convert_call(function: object, source_id: object, default_id: str, dropped: set[str]) -> Json:
    if not isinstance(function, dict):
        raise RowSkipped("a call of a tool is no object")
    call = RowMembers(function, "calls[].")
    name, arguments = call.read_text("name"), call.read_first("arguments", "parameters")
    dropped.update(set(call.unread_names()) - {"calls[].id", "calls[].type"})
    if isinstance(arguments, str) and arguments.strip():
        arguments = parse_json(arguments, "what a tool is called with")
    if not isinstance(arguments, dict) and has_value(arguments):
        raise RowSkipped("what a tool is called with is no object")
    text = json.dumps(arguments or {}, ensure_ascii=False)
    call_id = source_id if isinstance(source_id, str) and source_id else default_id
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}
