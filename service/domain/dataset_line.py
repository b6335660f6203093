"""Judges one line of a dataset, whose rows are all of one format: the first good row's."""

from service.domain import chat_line, preference_line
from service.domain.json_line import Problem, parse
from service.domain.row import Format, Row

_CHECKS = {Format.CHAT: chat_line.check, Format.PREFERENCE: preference_line.check}


def check_line(line: bytes, usual: Format | None) -> Row | Problem:
    """What the row holds, or the first thing that is wrong with it.

    ``usual`` is what the good rows before it are. A row that has nothing of either format is
    held against that one, so that it is told what is missing.
    """
    row = parse(line)
    if isinstance(row, Problem):
        return row
    if preference_line.is_one(row):
        found = Format.PREFERENCE
    elif problem := preference_line.check_chat(row):
        return problem
    else:
        found = Format.CHAT if "messages" in row else usual or Format.CHAT
    if usual is not None and found is not usual:
        return Problem(
            "mixed_formats",
            f"it is a {found}, but the rows before it are {usual.plural}; upload {found.plural} as "
            "a file of their own",
        )
    return _CHECKS[found](row, line)
