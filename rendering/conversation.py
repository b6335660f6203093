"""Bring a row's messages and tools into the form that chat templates know.

Rows are OpenAI's: "developer" is its newer word for "system", `functions` and `function_call` its
older ones for tools, a content may be null beside a call or a list of text parts.
"""

import json
from dataclasses import replace
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
    calls = _Calls(form)
    return [_message(message, calls) for message in row["messages"]]


def find_call_form(template: ChatTemplate) -> CallForm:
    """Return the form of calls that a template shows as JSON, or else shows at all."""
    shown = {form: _probed(template, form) for form in FORMS}
    bare = {form: _probed(template, replace(form, null_content=True)) for form in FORMS}
    for is_good in (is_call_as_json, is_call_shown):
        for form in FORMS:
            is_bare_better = len(bare[form]) < len(shown[form]) or not is_good(shown[form])
            if is_good(bare[form]) and is_bare_better:
                return replace(form, null_content=True)
            if is_good(shown[form]):
                return form
    return FORMS[0]


def _probed(template: ChatTemplate, form: CallForm) -> str:
    try:
        text, _ = template.render(messages_of(PROBE, form), tools_of(PROBE), _ANY_DAY)
    except RenderError:
        return ""
    return text


def is_trained(message: Message) -> bool:
    """Whether a message of a row is an answer to be learnt."""
    return message["role"] == "assistant" and bool(message.get("weight", 1))


class _Calls:
    """The calls of a chat so far, so that their results name them."""

    def __init__(self, form: CallForm) -> None:
        self.form = form
        self._made = 0
        self._names: dict[str, str] = {}  # of the functions called, by call
        self._open: list[str] = []  # calls without a result

    def add(self, call: Json) -> Json:
        """A call as the template wants it."""
        function = call["function"]
        given = function.get("arguments") or "{}"
        parsed = _parsed(given, function["name"])
        call_id = call.get("id") or f"call_{self._made}"
        self._made += 1
        self._names[call_id] = function["name"]
        self._open.append(call_id)
        arguments = self.form.arguments(given, parsed)
        return call | {
            "id": self.form.call_id(call_id),
            "type": "function",
            "function": function | {"arguments": arguments},
        }

    def write_result(self, message: Message) -> None:
        """Name the call that a message answers: by its id, its function, or else the first open."""
        answered = message.get("tool_call_id") or self._find(message)
        if answered is None:
            return
        message["tool_call_id"] = self.form.call_id(answered)
        if answered in self._open:
            self._open.remove(answered)
        if self.form.named_results and answered in self._names:
            message.setdefault("name", self._names[answered])

    def _find(self, message: Message) -> str | None:
        """The call of a message that names none; one without a result goes first."""
        name = message.get("name")
        among = [*self._open, *reversed(self._names)]
        return next((call for call in among if name in (None, self._names[call])), None)


def _message(given: Message, calls: _Calls) -> Message:
    message = {n: v for n, v in given.items() if v is not None and n not in _OURS}
    role = message["role"]
    if "content" not in message and role != "assistant":
        raise RenderError(f"a message of role {role} has no content")
    message["content"] = _text(message.get("content", ""))
    if role == "developer":
        message["role"] = "system"
    elif role == "assistant":
        _write_calls(message, calls)
        _write_reasoning(message)
    elif role in ("tool", "function"):
        message["role"] = "tool"
        calls.write_result(message)
    return message


def _text(content: str | list[Json]) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def _write_reasoning(message: Message) -> None:
    told = message.pop(_REASONING[0], "")
    if told:
        message.update(dict.fromkeys(_REASONING, told))


def _write_calls(message: Message, calls: _Calls) -> None:
    made = message.pop("tool_calls", None) or []
    if call := message.pop("function_call", None):
        made = [{"type": "function", "function": call}]
    if made:
        message["tool_calls"] = [calls.add(call) for call in made]
        if calls.form.null_content and not message["content"]:
            message["content"] = None


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
