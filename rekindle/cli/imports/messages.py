"""Convert turns and messages of other programs to chat messages."""

import json
from typing import Any

from rekindle.cli.imports.members import Json, LeftOut, Members, is_there, parsed, weight_of

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


def from_turns(turns: object, dropped: set[str]) -> Messages:
    """Return the messages of a ShareGPT conversation up to its last answer."""
    if not isinstance(turns, list):
        raise LeftOut("`conversations` is no list")
    messages = from_messages(turns, "conversations", dropped) if turns else []
    while messages and messages[-1]["role"] != "assistant":
        messages.pop()
        dropped.add("conversations[] after the last answer")
    require_answer(messages)
    return messages


def from_messages(given: object, name: str, dropped: set[str], before: Messages = []) -> Messages:  # noqa: B006 - never changed
    """Return the messages of a list or of one message; ``before`` holds earlier ones."""
    listed = [given] if isinstance(given, dict) else given
    if not isinstance(listed, list) or not listed:
        raise LeftOut(f"`{name}` is no list of messages")
    messages: Messages = []
    for one in listed:
        if not isinstance(one, dict):
            raise LeftOut(f"a turn of `{name}` is no object")
        members = Members(one, f"{name}[].")
        messages.append(_message(members, [*before, *messages], dropped))
        dropped.update(members.unread())
    return messages


def plain(role: str, content: str) -> Json:
    """Return a message with role and content only."""
    return {"role": role, "content": content}


def require_answer(messages: Messages) -> None:
    """Raise LeftOut if no answer would be trained."""
    weights = [m.get("weight", 1) for m in messages if m["role"] == "assistant"]
    if not weights:
        raise LeftOut("no message is the assistant's")
    if not any(weights):
        raise LeftOut("every answer has weight 0")


def _message(turn: Members, before: Messages, dropped: set[str]) -> Json:
    said_by = turn.either("from", "role")
    role = _ROLES.get(said_by.lower()) if isinstance(said_by, str) else None
    if role is None:
        raise LeftOut(f"a turn is from {said_by!r:.40}, which is no role that is known")
    weight = weight_of(turn)
    message: Json
    if role == "call":
        message = {
            "role": "assistant",
            "content": "",
            "tool_calls": _calls_in(turn, before, dropped),
        }
    elif role == "tool":
        message = _result(turn, before)
    else:
        message = _message_of(turn, role, before, dropped)
    if is_there(name := turn.read("name")) and role != "tool":
        if not isinstance(name, str):
            raise LeftOut("`name` is no text")
        message["name"] = name
    if message["role"] == "assistant":
        return message if weight is None else message | {"weight": weight}
    if weight:
        dropped.add(f"weight of messages of role {role}")
    return message


def _message_of(turn: Members, role: str, before: Messages, dropped: set[str]) -> Json:
    calls = _carried_calls(turn, before, dropped) if role == "assistant" else []
    content = turn.either("value", "content")
    if isinstance(content, list) and content:
        message: Json = {"role": role, "content": _text_parts(content)}
    else:
        text = turn.optional_text("value", "content") if calls else turn.text("value", "content")
        message = plain(role, text)
    if calls:
        message["tool_calls"] = calls
    if role == "assistant" and (thoughts := turn.optional_text(*_THOUGHTS)):
        message["reasoning_content"] = thoughts
    return message


def _text_parts(parts: list[Any]) -> str:
    for part in parts:
        if not isinstance(part, dict) or part.get("type") != "text":
            raise LeftOut("a message has parts that are no text")
        if not isinstance(part.get("text"), str):
            raise LeftOut("a message has parts that are no text")
    text = "".join(part["text"] for part in parts)
    if not text.strip():
        raise LeftOut("`content` is empty")
    return text


def _result(turn: Members, before: Messages) -> Json:
    """Return a tool's result, for the call that it names or the first one without a result."""
    content = turn.either("value", "content")
    if not isinstance(content, str | None):
        raise LeftOut("what a tool answered is no text")
    calls = [call["id"] for message in before for call in message.get("tool_calls", ())]
    answered = {message.get("tool_call_id") for message in before}
    given = turn.optional_text("tool_call_id")
    if given and given not in calls:
        raise LeftOut("a tool's result names a call that is not before it")
    open_calls = [call for call in calls if call not in answered]
    if not given and not open_calls:
        raise LeftOut("a tool's result has no call before it")
    turn.read("name")  # the call has it
    return plain("tool", content or "") | {"tool_call_id": given or open_calls[0]}


def _calls_in(turn: Members, before: Messages, dropped: set[str]) -> Messages:
    """Return tool calls that a turn holds as JSON text."""
    told = parsed(turn.text("value", "content"), "a call of a tool")
    listed = told if isinstance(told, list) and told else [told]
    return [_call(one, None, f"call_{len(before)}_{n}", dropped) for n, one in enumerate(listed)]


def _carried_calls(turn: Members, before: Messages, dropped: set[str]) -> Messages:
    """Return tool calls in OpenAI's current or older form."""
    calls, older = turn.read("tool_calls"), turn.read("function_call")
    listed = [*([older] if is_there(older) else []), *(calls if isinstance(calls, list) else [])]
    if is_there(calls) and not isinstance(calls, list):
        raise LeftOut("`tool_calls` is no list")
    found = []
    for number, one in enumerate(listed):
        held = one.get("function", one) if isinstance(one, dict) else one
        given = one.get("id") if isinstance(one, dict) else None
        found.append(_call(held, given, f"call_{len(before)}_{number}", dropped))
    return found


def _call(function: object, given: object, otherwise: str, dropped: set[str]) -> Json:
    if not isinstance(function, dict):
        raise LeftOut("a call of a tool is no object")
    call = Members(function, "calls[].")
    name, arguments = call.text("name"), call.either("arguments", "parameters")
    dropped.update(set(call.unread()) - {"calls[].id", "calls[].type"})
    if isinstance(arguments, str) and arguments.strip():
        arguments = parsed(arguments, "what a tool is called with")
    if not isinstance(arguments, dict) and is_there(arguments):
        raise LeftOut("what a tool is called with is no object")
    text = json.dumps(arguments or {}, ensure_ascii=False)
    call_id = given if isinstance(given, str) and given else otherwise
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}
