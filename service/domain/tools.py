"""Judges the tools that stand beside messages, and the calls to them.

The chat template reads both on the node, and breaks on what is not in OpenAI's form.
"""

from typing import Any

from service.domain.json_line import Problem

_FORM = '{"type": "function", "function": {"name": "..."}}'
_CALL = '{"type": "function", "function": {"name": "...", "arguments": "{}"}}'
_OLD_FORM = '{"name": "..."}'  # of `functions`, which came before `tools`


def check_tools(holder: dict[str, Any]) -> Problem | None:
    """What is wrong with the tools of a chat, or of a preference's input."""
    for key in ("tools", "functions"):
        tools = holder.get(key)
        if tools is None:
            continue
        if not isinstance(tools, list):
            return Problem("data_type", f"`{key}` must be a list")
        for number, tool in enumerate(tools, 1):
            if not _has_name(_function(tool) if key == "tools" else tool):
                form = _FORM if key == "tools" else _OLD_FORM
                return Problem("data_type", f"`{key}`, item {number}: write it as {form}")
    return None


def check_calls(message: dict[str, Any]) -> Problem | None:
    """What is wrong with the calls that a message makes."""
    calls = message.get("tool_calls")
    if calls is None:
        return None
    if not isinstance(calls, list):
        return Problem("data_type", "`tool_calls` must be a list")
    for number, call in enumerate(calls, 1):
        function = _function(call)
        if not _has_name(function):
            return Problem("data_type", f"`tool_calls`, item {number}: write it as {_CALL}")
        if not isinstance(function.get("arguments"), str):
            what = "`arguments` must be a string that holds JSON, such as '{}'"
            return Problem("data_type", f"`tool_calls`, item {number}: {what}")
    return None


def _function(holder: object) -> Any:  # noqa: ANN401 - whatever JSON holds
    return holder.get("function") if isinstance(holder, dict) else None


def _has_name(function: object) -> bool:
    name = function.get("name") if isinstance(function, dict) else None
    return isinstance(name, str) and name != ""
