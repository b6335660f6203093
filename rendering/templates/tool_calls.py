"""Detect the form of tool calls that a chat template expects.

OpenAI's rows have arguments as JSON text, and any id. Most templates serialize an object
(`arguments | tojson`), which would escape text twice; some join text; Mistral's accept ids of nine
characters only; some need the function's name in its result, or no content beside a call. Each
template is probed once with a test chat.
"""

import hashlib
import json
import re
from dataclasses import dataclass
from itertools import product
from typing import Any

Json = dict[str, Any]

_SHORT_ID = 9  # characters
_NAME, _KEY, _VALUE = "rekindle_probe", "probe_key", "probe value"
_AS_JSON = re.compile(rf'"{_KEY}"\s*:\s*"{_VALUE}"')


@dataclass(frozen=True)
class CallForm:
    """How a template expects tool calls of an assistant's message."""

    arguments_as_text: bool = False
    short_ids: bool = False
    named_results: bool = False  # results need the function's name, which clients omit
    null_content: bool = False  # content beside calls must be null: "" would be an answer

    def arguments(self, original: object, parsed: Json) -> str | Json:
        """Return the arguments of a call, which were ``original`` as text or as an object."""
        if not self.arguments_as_text:
            return parsed
        return original if isinstance(original, str) else json.dumps(parsed, ensure_ascii=False)

    def call_id(self, original: str) -> str:
        """Return the id of a call, equal for the call and its result."""
        if not self.short_ids or (len(original) == _SHORT_ID and original.isalnum()):
            return original
        return hashlib.sha256(original.encode()).hexdigest()[:_SHORT_ID]


_EITHER = (False, True)
FORMS = tuple(CallForm(*form[::-1]) for form in product(_EITHER, repeat=3))  # usual ones first
PROBE: Json = {
    "messages": [
        {"role": "user", "content": "Probe it."},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": _NAME, "arguments": json.dumps({_KEY: _VALUE})},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "Done."},
        {"role": "assistant", "content": "It is probed."},
    ],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": _NAME,
                "description": "Probes.",
                "parameters": {
                    "type": "object",
                    "properties": {_KEY: {"type": "string", "description": "What to probe."}},
                    "required": [_KEY],
                },
            },
        }
    ],
}


def is_call_as_json(rendered: str) -> bool:
    """Return whether the probe's arguments were rendered as JSON, escaped once."""
    return _AS_JSON.search(rendered) is not None


def is_call_shown(rendered: str) -> bool:
    """Return whether the probe's arguments were rendered at all."""
    return _VALUE in rendered
