"""Check one row of OpenAI's preference format: a prompt, a preferred and another answer."""

from collections.abc import Iterator
from typing import Any, Final

from contract.choices import Format
from service.domain.datasets import message
from service.domain.datasets.json_line import DatasetProblem
from service.domain.datasets.message import Message
from service.domain.datasets.row import DatasetRow
from service.domain.datasets.tools import check_style, check_tools, may_call

PREFERRED: Final = ("preferred_output", "preferred_completion")  # the usual name and its alias
NON_PREFERRED: Final = ("non_preferred_output", "non_preferred_completion")

_OUTPUTS = frozenset((*PREFERRED, *NON_PREFERRED))
_OUTPUT_ROLES = ("assistant", "tool")
_INPUT_MEMBERS = ("tools", "functions", "parallel_tool_calls")


def is_preference(row: dict[str, Any]) -> bool:
    """Return whether the row is meant as a preference, valid or not."""
    if "messages" in row:  # a chat
        return False
    return isinstance(row.get("input"), dict) or has_outputs(row)


def has_outputs(row: dict[str, Any]) -> bool:
    """Return whether one of the two outputs is there, valid or not."""
    return not row.keys().isdisjoint(_OUTPUTS)


def check_chat(row: dict[str, Any]) -> DatasetProblem | None:
    """Return the problem of a chat that has outputs, too: it is ambiguous."""
    if len(row) == 1 or "messages" not in row or not has_outputs(row):
        return None
    for name in (*PREFERRED, *NON_PREFERRED):
        if row.get(name) is not None:
            reason = f"it has `messages` and `{name}`: move the messages into `input`"
            return DatasetProblem("mixed_formats", reason)
    return None


def check(row: dict[str, Any], line: bytes) -> DatasetRow | DatasetProblem:
    """Return what the row holds, or the first problem."""
    prompt = prompt_of(row.get("input"))
    if isinstance(prompt, DatasetProblem):
        return prompt
    if problem := check_beside(row):
        return problem
    preferred, rejected = _output(row, PREFERRED), _output(row, NON_PREFERRED)
    if isinstance(preferred, DatasetProblem):
        return preferred
    if isinstance(rejected, DatasetProblem):
        return rejected
    parts = {"input": prompt, PREFERRED[0]: preferred, NON_PREFERRED[0]: rejected}
    sizes = []
    for name, messages in parts.items():
        size = message.check_all(messages, f"{name}, message")
        if isinstance(size, DatasetProblem):
            return size
        sizes.append(size)
    if problem := check_output(parts, PREFERRED[0]) or check_output(parts, NON_PREFERRED[0]):
        return problem
    tools = row["input"] if may_call(line) else None
    if tools and (problem := check_style(tools, [*prompt, *preferred, *rejected])):
        return problem
    prompt_size, preferred_size, rejected_size = sizes
    notes = tuple(_notes(line, tools, parts))
    return DatasetRow(
        Format.PREFERENCE,
        2 * prompt_size + preferred_size + rejected_size,
        prompt_size + max(preferred_size, rejected_size),
        notes,
    )


def prompt_of(row_input: object) -> list[Any] | DatasetProblem:
    """Return the messages of a row's input, or the problem with it."""
    if not isinstance(row_input, dict):
        return DatasetProblem("missing_input", "`input` must be an object that holds `messages`")
    messages = row_input.get("messages")
    if not isinstance(messages, list) or not messages:
        return DatasetProblem(
            "missing_messages_list", "`input` must hold `messages`, a list of at least one message"
        )
    return check_tools(row_input) or messages


def check_beside(row: dict[str, Any]) -> DatasetProblem | None:
    """Return the problem if the row has members that are read from its input only."""
    for name in _INPUT_MEMBERS:
        if row.get(name) is not None:
            return DatasetProblem(
                "outside_input", f"`{name}` is read from `input` only: move it there"
            )
    return None


def _output(row: dict[str, Any], names: tuple[str, str]) -> list[Any] | DatasetProblem:
    usual, alias = names
    if usual in row and alias in row:
        return DatasetProblem(
            "output_given_twice", f"`{usual}` and `{alias}` are the same: leave one out"
        )
    output = row.get(usual, row.get(alias))
    if not isinstance(output, list) or not output:
        return DatasetProblem("missing_output", f"`{usual}` must be a list of at least one message")
    return output


def check_output(parts: dict[str, list[Message]], name: str) -> DatasetProblem | None:
    """Return the problem with the part of this name as an answer."""
    for number, output in enumerate(parts[name], 1):
        if output["role"] not in _OUTPUT_ROLES:
            return DatasetProblem(
                "invalid_output_role",
                f"{name}, message {number}: outputs are the assistant's messages and its tools'; "
                f"move what is of role {output['role']} to `input`",
            )
    problem = message.check_learnt(parts[name])
    return problem and DatasetProblem(problem.code, f"{name}: {problem.message}")


def _notes(
    line: bytes, tools: dict[str, Any] | None, parts: dict[str, list[Message]]
) -> Iterator[DatasetProblem]:
    """Yield warnings, each once: the prompt is part of both sequences."""
    prompt, preferred, rejected = parts.values()
    sequences = ([m["role"] for m in (*prompt, *output)] for output in (preferred, rejected))
    yield from {odd.code: odd for roles in sequences for odd in message.odd_roles(roles)}.values()
    if preferred == rejected:
        yield DatasetProblem("equal_outputs", "both outputs are the same: the pair teaches nothing")
    yield from message.odd_messages(line, tools, message.with_names(parts))
