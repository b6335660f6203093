"""Check one line of a dataset; all rows have the format of the first good row."""

from typing import Any

from contract.choices import Format
from service.domain.datasets import (
    chat_line,
    labelled_line,
    preference_line,
    prompt_line,
    ranking_line,
)
from service.domain.datasets.json_line import DatasetProblem, parse
from service.domain.datasets.row import DatasetRow

_CHECKS = {
    Format.CHAT: chat_line.check,
    Format.PREFERENCE: preference_line.check,
    Format.PROMPT: prompt_line.check,
    Format.RANKING: ranking_line.check,
    Format.LABELLED: labelled_line.check,
}
_ENDS = "; a chat ends with the assistant's message, a prompt with one to be answered"


def check_line(line: bytes, file_format: Format | None) -> DatasetRow | DatasetProblem:
    """Return what the row holds, or the first problem.

    ``file_format`` is the format of the good rows before it. A row with nothing of any format is
    checked against that one, to say what is missing. Among chats one may end with another message
    than the assistant's; only without chats before it is that a prompt.
    """
    row = parse(line)
    if isinstance(row, DatasetProblem):
        return row
    row_format = _format(row, file_format)
    if row_format is not Format.PREFERENCE and (problem := preference_line.check_chat(row)):
        return problem
    if file_format is not None and row_format is not file_format:
        return _mixed(row_format, file_format)
    return _CHECKS[row_format](row, line)


def _format(row: dict[str, Any], file_format: Format | None) -> Format:
    """Return the format that the row is meant as, valid or not."""
    if file_format is Format.CHAT and len(row) == 1 and "messages" in row:  # most rows
        return file_format
    if ranking_line.is_ranking(row):
        return Format.RANKING
    if preference_line.is_preference(row):
        is_part = file_format is Format.RANKING and not preference_line.has_outputs(row)
        return Format.RANKING if is_part else Format.PREFERENCE
    if labelled_line.is_labelled(row) or (
        file_format is Format.LABELLED and labelled_line.may_be_labelled(row)
    ):
        return Format.LABELLED
    if "messages" not in row:
        return file_format or Format.CHAT
    if file_format is not Format.CHAT and prompt_line.is_prompt(row):
        return Format.PROMPT
    return Format.CHAT


def _mixed(row_format: Format, file_format: Format) -> DatasetProblem:
    how = _ENDS if {row_format, file_format} == {Format.CHAT, Format.PROMPT} else ""
    return DatasetProblem(
        "mixed_formats",
        f"it is a {row_format.singular}, but the rows before it are {file_format.plural}; upload "
        f"{row_format.plural} as a file of their own{how}",
    )
