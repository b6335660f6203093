"""Check the tools beside messages, and the calls to them.

The chat template reads both on the node, and fails on what is not in OpenAI's form.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from service.domain import strict_json
from service.domain.datasets.json_line import DatasetProblem

Json = dict[str, Any]

_FORM = '{"type": "function", "function": {"name": "..."}}'
_CALL = '{"type": "function", "function": {"name": "...", "arguments": "{}"}}'
_OLD_FORM = '{"name": "..."}'  # of `functions`, which came before `tools`
_OLD_CALL = '{"name": "...", "arguments": "{}"}'
_MAY_CALL = re.compile(rb'"(?:tool|func)')  # begins the names of all members and roles of calls


def may_call(line: bytes) -> bool:
    """Return whether the row of this line may hold tools or calls."""
    return _MAY_CALL.search(line) is not None


def check_tools(holder: Json) -> DatasetProblem | None:
    """Return the problem with the tools of a chat, or of a preference's input."""
    for key in ("tools", "functions"):
        tools = holder.get(key)
        if tools is None:
            continue
        if not isinstance(tools, list):
            return DatasetProblem("data_type", f"`{key}` must be a list")
        for number, tool in enumerate(tools, 1):
            if not _has_name(_function(tool) if key == "tools" else tool):
                form = _FORM if key == "tools" else _OLD_FORM
                return DatasetProblem("data_type", f"`{key}`, item {number}: write it as {form}")
    return None


def check_calls(message: Json) -> DatasetProblem | None:
    """Return the problem with a message's calls, or with the result that it holds."""
    calls = message.get("tool_calls")
    if calls is not None and not isinstance(calls, list):
        return DatasetProblem("data_type", "`tool_calls` must be a list")
    for number, call in enumerate(calls or (), 1):
        if fault := _find_call_fault(call):
            return DatasetProblem("data_type", f"`tool_calls`, item {number}: {fault}")
    call = message.get("function_call")
    if call is not None and (fault := _find_function_fault(call, _OLD_CALL)):
        return DatasetProblem("data_type", f"`function_call`: {fault}")
    if message["role"] == "function" and not message.get("name"):
        return DatasetProblem("message_missing_key", "a message of role function needs its `name`")
    return None


def check_style(holder: Json, messages: list[Json]) -> DatasetProblem | None:
    """Return the problem if OpenAI's older form of calls stands beside the newer one."""
    old = "functions" if holder.get("functions") else _first(messages, "function")
    new = "tools" if holder.get("tools") else _first(messages, "tool")
    if not old or not new:
        return None
    reason = f"it mixes {new} with {old}, the older form: write all as `tools` and `tool_calls`"
    return DatasetProblem("mixed_formats", reason)


def odd_calls(holder: Json, named: Iterable[tuple[str, Json]]) -> Iterator[DatasetProblem]:
    """Yield warnings: the first undeclared tool call, and the first result without its call."""
    declared = {tool["function"]["name"] for tool in holder.get("tools") or ()}
    declared |= {function["name"] for function in holder.get("functions") or ()}
    problems: dict[str, DatasetProblem] = {}
    open_calls: set[object] = set()  # ids of calls, and names of functions
    for name, message in named:
        for called, number in _calls(message):
            open_calls |= {number, called}
            if called not in declared:
                reason = f"{name} calls {called!a:.40}, which `tools` does not declare"
                problems.setdefault("undeclared_tool", DatasetProblem("undeclared_tool", reason))
        if message["role"] in ("tool", "function") and not _answers(message, open_calls):
            reason = f"{name} is the result of no call before it; check its `tool_call_id`"
            problems.setdefault(
                "result_without_call", DatasetProblem("result_without_call", reason)
            )
    yield from problems.values()


def _find_call_fault(call: object) -> str | None:
    if not isinstance(call, dict) or call.get("type", "function") != "function":
        return f"write it as {_CALL}"
    if not isinstance(call.get("id", ""), str):
        return "`id` must be a string"
    return _find_function_fault(call.get("function"), _CALL)


def _find_function_fault(function: object, form: str) -> str | None:
    if not isinstance(function, dict) or not _has_name(function):
        return f"write it as {form}"
    arguments = function.get("arguments")
    if isinstance(arguments, dict):  # as chat templates read it, and data sets for them have it
        return None
    if not isinstance(arguments, str):
        return "`arguments` must be a JSON object, or a string that holds one, such as '{}'"
    if not arguments.strip():
        return "`arguments` is empty; write '{}' for a call without any"
    try:
        parsed = strict_json.loads(arguments)
    except json.JSONDecodeError as error:
        position = f"{error.msg} at column {error.colno}"
        return f"`arguments` is no JSON ({position}); write it with json.dumps"
    except ValueError as error:
        return f"`arguments`: {error}"
    if isinstance(parsed, str):
        return "`arguments` is encoded as JSON twice; leave out one json.dumps"
    return None if isinstance(parsed, dict) else "`arguments` must hold a JSON object, such as '{}'"


def _first(messages: list[Json], prefix: str) -> str | None:
    """Return what shows the use of `tool...` or `function...` in these messages."""
    for message in messages:
        if message["role"] == prefix:
            return f"role {prefix}"
        for member in (f"{prefix}_calls", f"{prefix}_call"):
            if message.get(member):
                return f"`{member}`"
    return None


def _calls(message: Json) -> Iterator[tuple[str, object]]:
    """Yield name and id of each call that a message makes."""
    for call in message.get("tool_calls") or ():
        yield call["function"]["name"], call.get("id")
    if call := message.get("function_call"):
        yield call["name"], None


def _answers(message: Json, open_calls: set[object]) -> bool:
    """Return whether a result has a call; one that names none answers any."""
    named = message.get("tool_call_id") if message["role"] == "tool" else message.get("name")
    return named in open_calls if named else bool(open_calls)


def _function(holder: object) -> Any:  # noqa: ANN401 - whatever JSON holds
    return holder.get("function") if isinstance(holder, dict) else None


def _has_name(function: object) -> bool:
    name = function.get("name") if isinstance(function, dict) else None
    return isinstance(name, str) and name != ""
