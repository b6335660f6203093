"""Turns and messages of other programs become our messages."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from rekindle.cli.import_members import Json, LeftOut, Members, weight_of

Messages = list[Json]

_ROLES = {
    "system": "system",
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
_OURS = ("system", "developer", "user", "assistant", "tool", "function")
_CARRIED = ("name", "tool_calls", "tool_call_id", "function_call", "reasoning_content")


def from_turns(turns: object, dropped: set[str]) -> Messages:
    """Messages of a ShareGPT conversation; what follows the last answer is cut off."""
    if not isinstance(turns, list):
        raise LeftOut("`conversations` is no list")
    messages: Messages = []
    for turn in turns:
        if not isinstance(turn, dict):
            raise LeftOut("a turn of `conversations` is no object")
        members = Members(turn, "conversations[].")
        messages.append(_turn(members, messages))
        dropped.update(members.unread())
    while messages and messages[-1]["role"] != "assistant":
        messages.pop()
        dropped.add("conversations[] after the last answer")
    if not messages:
        raise LeftOut("no message is the assistant's")
    if not any(m["role"] == "assistant" and m.get("weight", 1) for m in messages):
        raise LeftOut("every answer has weight 0")
    return messages


def from_messages(given: object, name: str, dropped: set[str]) -> Messages:
    """A list of messages, whose members we know are carried over."""
    if not isinstance(given, list) or not given:
        raise LeftOut(f"`{name}` is no list of messages")
    return [_message(one, name, dropped) for one in given]


def plain(role: str, content: str) -> Json:
    """A message without anything else."""
    return {"role": role, "content": content}


def _turn(turn: Members, before: Messages) -> Json:
    said_by = turn.read("from")
    role = _ROLES.get(said_by.lower()) if isinstance(said_by, str) else None
    if role is None:
        raise LeftOut(f"a turn is from {said_by!r:.40}, which is no role that is known")
    weight = weight_of(turn)
    if role == "call":
        message = _call(turn.text("value"), len(before))
    elif role == "tool":
        message = {
            "role": "tool",
            "tool_call_id": _last_call(before),
            "content": turn.read("value"),
        }
        if not isinstance(message["content"], str):
            raise LeftOut("`value` is no text")
    else:
        message = plain(role, turn.text("value"))
    return _weighed(message, weight)


def _weighed(message: Json, weight: int | None) -> Json:
    if weight is None or message["role"] != "assistant":
        return message
    return message | {"weight": weight}


def _call(value: str, number: int) -> Json:
    try:
        told = json.loads(value)
    except ValueError:
        raise LeftOut("a call of a tool is no JSON") from None
    calls = []
    for place, one in enumerate(told if isinstance(told, list) else [told]):
        if not isinstance(one, dict) or not isinstance(one.get("name"), str):
            raise LeftOut("a call of a tool has no `name`")
        arguments = one.get("arguments", one.get("parameters", {}))
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        function = {"name": one["name"], "arguments": text}
        calls.append({"id": f"call_{number}_{place}", "type": "function", "function": function})
    return {"role": "assistant", "content": "", "tool_calls": calls}


def _last_call(before: Iterable[Json]) -> str:
    ids = [call["id"] for message in before for call in message.get("tool_calls", ())]
    if not ids:
        raise LeftOut("a tool's result has no call before it")
    return str(ids[-1])


def _message(given: object, name: str, dropped: set[str]) -> Json:
    if not isinstance(given, Mapping) or "role" not in given:
        raise LeftOut(f"`{name}` is no list of messages")
    members = Members(given, f"{name}[].")
    role, content = members.read("role"), members.read("content")
    if role not in _OURS:
        raise LeftOut(f"a message is of role {role!r:.40}, which is not known")
    message: dict[str, Any] = {"role": role, "content": content}
    for carried in _CARRIED:
        if (value := members.read(carried)) is not None:
            message[carried] = value
    message = _weighed(message, weight_of(members))
    dropped.update(members.unread())
    return message
