"""Convert a row's messages and tools to the form that chat templates expect.

Rows have OpenAI's format: "developer" is the newer word for "system"; `functions` and
`function_call` are the older words for tools; content may be null beside a call, or text parts.
"""

import json
from dataclasses import replace
from datetime import date
from typing import Any

from rendering.templates.chat_template import ChatTemplate, Message, RenderError, Tools
from rendering.templates.tool_calls import (
    FORMS,
    PROBE,
    CallForm,
    Json,
    is_call_as_json,
    is_call_shown,
)

_ANY_DAY = date(2024, 7, 26)
_TRAINING_MEMBERS = ("weight",)  # members of a message that only training reads
_REASONING = ("reasoning_content", "thinking")  # the usual name, and gpt-oss'


def template_tools(row: Json) -> Tools:
    """Return the tools that a chat offers; None if there are none."""
    if tools := row.get("tools"):
        return list(tools)
    if functions := row.get("functions"):
        return [{"type": "function", "function": function} for function in functions]
    return None


def template_messages(row: Json, form: CallForm) -> list[Message]:
    """Return the messages for a template; raise RenderError for an unreadable tool call."""
    calls = _CallRegistry(form)
    return [_convert_message(message, calls) for message in row["messages"]]


def find_call_form(template: ChatTemplate) -> CallForm:
    """Return the form of tool calls that the template renders as JSON, or else at all."""
    rendered = {form: _render_probe(template, form) for form in FORMS}
    bare = {form: _render_probe(template, replace(form, null_content=True)) for form in FORMS}
    for is_good in (is_call_as_json, is_call_shown):
        for form in FORMS:
            is_bare_better = len(bare[form]) < len(rendered[form]) or not is_good(rendered[form])
            if is_good(bare[form]) and is_bare_better:
                return replace(form, null_content=True)
            if is_good(rendered[form]):
                return form
    return FORMS[0]


def _render_probe(template: ChatTemplate, form: CallForm) -> str:
    try:
        text, _ = template.render(template_messages(PROBE, form), template_tools(PROBE), _ANY_DAY)
    except RenderError:
        return ""
    return text


def is_trained(message: Message) -> bool:
    """Return whether a message is a trained answer."""
    return message["role"] == "assistant" and bool(message.get("weight", 1))


class _CallRegistry:
    """The tool calls of a chat so far, which later results refer to."""

    def __init__(self, form: CallForm) -> None:
        self.form = form
        self._count = 0
        self._names: dict[str, str] = {}  # function name by call id
        self._open: list[str] = []  # calls without a result

    def add_call(self, call: Json) -> Json:
        """Return a call in the template's form."""
        function = call["function"]
        text = function.get("arguments") or "{}"
        parsed = _parse_arguments(text, function["name"])
        call_id = call.get("id") or f"call_{self._count}"
        self._count += 1
        self._names[call_id] = function["name"]
        self._open.append(call_id)
        arguments = self.form.arguments(text, parsed)
        return call | {
            "id": self.form.call_id(call_id),
            "type": "function",
            "function": function | {"arguments": arguments},
        }

    def write_result(self, message: Message) -> None:
        """Set the call id of a tool result: given, by function name, or the first open call."""
        call_id = message.get("tool_call_id") or self._find_call(message)
        if call_id is None:
            return
        message["tool_call_id"] = self.form.call_id(call_id)
        if call_id in self._open:
            self._open.remove(call_id)
        if self.form.named_results and call_id in self._names:
            message.setdefault("name", self._names[call_id])

    def _find_call(self, message: Message) -> str | None:
        """Return the call of a result without an id; calls without a result come first."""
        name = message.get("name")
        among = [*self._open, *reversed(self._names)]
        return next((call for call in among if name in (None, self._names[call])), None)


def _convert_message(original: Message, calls: _CallRegistry) -> Message:
    message = {n: v for n, v in original.items() if v is not None and n not in _TRAINING_MEMBERS}
    role = message["role"]
    if "content" not in message and role != "assistant":
        raise RenderError(f"a message of role {role} has no content")
    message["content"] = _join_text(message.get("content", ""))
    if role == "developer":
        message["role"] = "system"
    elif role == "assistant":
        _write_calls(message, calls)
        _write_reasoning(message)
    elif role in ("tool", "function"):
        message["role"] = "tool"
        calls.write_result(message)
    return message


def _join_text(content: str | list[Json]) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def _write_reasoning(message: Message) -> None:
    reasoning = message.pop(_REASONING[0], "")
    if reasoning:
        message.update(dict.fromkeys(_REASONING, reasoning))


def _write_calls(message: Message, calls: _CallRegistry) -> None:
    written = message.pop("tool_calls", None) or []
    if call := message.pop("function_call", None):
        written = [{"type": "function", "function": call}]
    if written:
        message["tool_calls"] = [calls.add_call(call) for call in written]
        if calls.form.null_content and not message["content"]:
            message["content"] = None


def _parse_arguments(text: object, name: str) -> Json:
    try:
        arguments: Any = json.loads(text) if isinstance(text, str) else text
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
