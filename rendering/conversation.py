"""Bring a row's messages and tools into the form that chat templates know.

Rows are OpenAI's: "developer" is its newer word for "system", `functions` and `function_call` its
older ones for tools, a content may be null beside a call or a list of text parts.
"""

import json
from datetime import date
from typing import Any

from rendering.template import ChatTemplate, Message, RenderError, Tools
from rendering.tool_calls import FORMS, PROBE, CallForm, Json, is_call_as_json, is_call_shown

_ANY_DAY = date(2024, 7, 26)
_OURS = ("weight",)  # members of a message that say how to train on it
_REASONING = ("reasoning_content", "thinking")  # the field's name for it, and gpt-oss'


def tools_of(row: Json) -> Tools:
    """The tools that a chat offers; None for none."""
    if tools := row.get("tools"):
        return list(tools)
    if functions := row.get("functions"):
        return [{"type": "function", "function": function} for function in functions]
    return None


def messages_of(row: Json, form: CallForm) -> list[Message]:
    """The messages for a template; raise RenderError for a call that cannot be read."""
    names: dict[str, str] = {}  # of the functions called, by call
    return [_message(message, form, names) for message in row["messages"]]


def find_call_form(template: ChatTemplate) -> CallForm:
    """Return the form of calls that a template shows as JSON, or else shows at all."""
    shown = {form: _probed(template, form) for form in FORMS}
    as_json = (form for form, text in shown.items() if is_call_as_json(text))
    at_all = (form for form, text in shown.items() if is_call_shown(text))
    return next(as_json, None) or next(at_all, None) or FORMS[0]


def _probed(template: ChatTemplate, form: CallForm) -> str:
    try:
        text, _ = template.render(messages_of(PROBE, form), tools_of(PROBE), _ANY_DAY)
    except RenderError:
        return ""
    return text


def is_trained(message: Message) -> bool:
    """Whether a message of a row is an answer to be learnt."""
    return message["role"] == "assistant" and bool(message.get("weight", 1))


def _message(given: Message, form: CallForm, names: dict[str, str]) -> Message:
    message = {n: v for n, v in given.items() if v is not None and n not in _OURS}
    role = message["role"]
    if "content" not in message and role != "assistant":
        raise RenderError(f"a message of role {role} has no content")
    message["content"] = _text(message.get("content", ""))
    if role == "developer":
        message["role"] = "system"
    elif role == "assistant":
        _write_calls(message, form, names)
        _write_reasoning(message)
    elif role in ("tool", "function"):
        _write_result(message, form, names)
    return message


def _text(content: str | list[Json]) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def _write_reasoning(message: Message) -> None:
    told = message.pop(_REASONING[0], "")
    if told:
        message.update(dict.fromkeys(_REASONING, told))


def _write_calls(message: Message, form: CallForm, names: dict[str, str]) -> None:
    calls = message.get("tool_calls") or []
    if call := message.pop("function_call", None):
        calls = [{"type": "function", "function": call}]
    message.pop("tool_calls", None)
    if calls:
        message["tool_calls"] = [_call(call, form, names) for call in calls]


def _call(call: Json, form: CallForm, names: dict[str, str]) -> Json:
    function = call["function"]
    given = function.get("arguments") or "{}"
    parsed = _parsed(given, function["name"])
    call_id = call.get("id") or f"call_{len(names)}"
    names[call_id] = function["name"]
    arguments = form.arguments(given, parsed)
    return call | {
        "id": form.call_id(call_id),
        "type": "function",
        "function": function | {"arguments": arguments},
    }


def _parsed(given: object, name: str) -> Json:
    try:
        arguments: Any = json.loads(given) if isinstance(given, str) else given
    except (ValueError, RecursionError) as error:
        raise RenderError(
            f"the arguments of the call of {name!r} are not JSON ({error}): write an object such "
            'as {"a": 1}'
        ) from error
    if not isinstance(arguments, dict):
        raise RenderError(
            f"the arguments of the call of {name!r} are not a JSON object: write one such as "
            '{"a": 1}'
        )
    return arguments


def _write_result(message: Message, form: CallForm, names: dict[str, str]) -> None:
    """A function's message answers the last call of that name; a tool's names the call."""
    if message["role"] == "function":
        message["role"] = "tool"
        calls = [call for call, name in names.items() if name == message.get("name")]
        if calls:
            message["tool_call_id"] = calls[-1]
    call = message.get("tool_call_id")
    if call is not None:
        if call in names:
            message.setdefault("name", names[call])
        message["tool_call_id"] = form.call_id(call)
