"""Find out in which form a chat template wants tool calls.

OpenAI's rows hold a call's arguments as JSON text, under an id of any form. Most templates
serialize an object (`arguments | tojson`), which would escape text twice; some join text; Mistral's
take ids of nine characters only; some want the function's name in its result, or no content at all
beside a call. A template is asked once, with a chat of its own.
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
    """How a template wants the calls of an assistant's message."""

    arguments_as_text: bool = False
    short_ids: bool = False
    named_results: bool = False  # clients send results without a name; some templates need it
    null_content: bool = False  # beside calls, where "" would be an answer of its own

    def arguments(self, given: object, parsed: Json) -> str | Json:
        """The arguments of a call, which were ``given`` as text or as an object."""
        if not self.arguments_as_text:
            return parsed
        return given if isinstance(given, str) else json.dumps(parsed, ensure_ascii=False)

    def call_id(self, given: str) -> str:
        """The id of a call; the same for the message that answers it."""
        if not self.short_ids or (len(given) == _SHORT_ID and given.isalnum()):
            return given
        return hashlib.sha256(given.encode()).hexdigest()[:_SHORT_ID]


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
    """Whether the probe's arguments were rendered as JSON, escaped once."""
    return _AS_JSON.search(rendered) is not None


def is_call_shown(rendered: str) -> bool:
    """Whether the probe's arguments were rendered in any form."""
    return _VALUE in rendered
