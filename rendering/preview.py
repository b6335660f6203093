"""Show rows as a training run would read them: `python -m rendering.preview TASK < FILE`.

Reads standard input only as far as needed and prints one line of JSON. Limits and reported problems
are those of the preflight.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from rendering import segments
from rendering.limits import limit_process, limited_row
from rendering.preflight import Line, Preflight, numbered_lines
from rendering.report import DataFinding
from rendering.rows import RANKED, parse_line
from rendering.segments import CONTEXT, CUT, TRAINED
from rendering.sequences import RowReader, RowSequence, SplitNeeded
from rendering.task import Task
from rendering.templates.chat_template import RenderError
from rendering.tokenizer import Tokenizer, UnusableTokenizer, read_tokenizer
from rendering.tokens import trained_mask

ANSWER_BYTES = 1024**2  # maximum JSON of all rows
ROW_CHARACTERS = 20_000  # maximum characters shown of all examples of a row
MOST_EXAMPLES = 20  # per row
SECONDS = 20.0  # after which no further row is started
_MAX_MESSAGE = 1000  # characters of a problem's message
_NO_EXAMPLES = ("unreadable_row", "template_refuses")  # findings of rows that cannot be rendered

Json = dict[str, Any]


def preview_rows(
    tokenizer: Tokenizer,
    task: Task,
    lines: Iterator[Line],
    clock: Callable[[], float] = time.monotonic,
) -> Json:
    """Return at most ``task.most_rows`` rows from line ``task.first_line``, fewer if they are long.

    ``next_line`` is the first row that is not shown, None at the end of the file. ``last_line`` is
    the last row that was read.
    """
    selected, last = _select_lines(lines, task)
    until = clock() + SECONDS
    try:
        rows = _preview_within_limits(tokenizer, task, selected, lambda: clock() > until)
    except SplitNeeded:
        task = replace(task, splits_answers=True)
        rows = _preview_within_limits(tokenizer, task, selected, lambda: clock() > until)
    return {
        "rows": rows,
        "splits_answers": task.splits_answers,
        "next_line": selected[len(rows)][0] if len(rows) < len(selected) else None,
        "last_line": last,
    }


def _select_lines(lines: Iterator[Line], task: Task) -> tuple[list[Line], int]:
    """Return the rows to show and the one after them, and the last line number read."""
    last, selected = 0, []
    for number, line in lines:
        last = number
        if number >= task.first_line:
            selected.append((number, line))
        if len(selected) > task.most_rows:
            break
    return selected, last


def _preview_within_limits(
    tokenizer: Tokenizer, task: Task, selected: list[Line], is_late: Callable[[], bool]
) -> list[Json]:
    """Return as many rows as time and size allow, at least one."""
    rows: list[Json] = []
    size = 0
    for line in islice(selected, task.most_rows):
        row = _preview_row(tokenizer, task, line)
        size += len(json.dumps(row, ensure_ascii=False).encode())
        if rows and (size > ANSWER_BYTES or is_late()):
            break
        rows.append(row)
    return rows


def _preview_row(tokenizer: Tokenizer, task: Task, line: Line) -> Json:
    preflight = Preflight(tokenizer, task)
    preflight.check_lines([line])
    findings = preflight.findings()
    document: Json = {
        "line": line[0],
        "examples": [],
        "problems": [_problem_document(f) for f in findings],
    }
    if any(finding.code in _NO_EXAMPLES for finding in findings):
        return document
    row = parse_line(line[1])
    try:
        with limited_row():
            sequences = RowReader(tokenizer, task).sequences(row)
    except RenderError:  # just in time before, and not now
        return document
    shown_sequences = sequences[:MOST_EXAMPLES]
    most = ROW_CHARACTERS // len(shown_sequences)
    document["examples"] = [
        {"part": _part_name(task, row, number)} | _preview_example(tokenizer, task, sequence, most)
        for number, sequence in enumerate(shown_sequences)
    ]
    return document | (
        {"examples_omitted": omitted} if (omitted := len(sequences) - len(shown_sequences)) else {}
    )


def _preview_example(tokenizer: Tokenizer, task: Task, sequence: RowSequence, most: int) -> Json:
    encoding, rendered = tokenizer.encode(sequence.text), sequence.rendered
    trained = trained_mask(encoding, rendered) if rendered else [False] * len(encoding)
    trained[:1] = [False] * len(trained[:1])  # nothing precedes the first token to predict it
    around = tokenizer.backend.num_special_tokens_to_add(False) if sequence.is_plain else 0
    room = max(task.room - around, 0)
    kinds = (TRAINED if target else CONTEXT for target in trained[:room])
    cut = (CUT for _ in encoding.ids[room:])
    tokens = zip((*kinds, *cut), encoding.offsets, strict=True)
    runs = segments.find_runs(len(sequence.text), tokens)
    total = len(encoding) + around
    return {
        **(
            {"label": _escape_surrogates(sequence.row["label"])}
            if task.method == "classification"
            else {}
        ),
        "tokens": total,
        "kept_tokens": min(total, task.room),
        "trained_tokens": sum(trained[:room]),
        "segments": list(segments.shorten_segments(sequence.text, runs, most)),
    }


def _part_name(task: Task, row: Json, number: int) -> str:
    """Return which part of a row an example is."""
    if task.has_answers:
        return "ranked" if RANKED in row else ("preferred", "non_preferred")[number]
    if task.method == "supervised":
        return "answer" if task.splits_answers else "chat"
    return {"reinforcement": "prompt", "classification": "labelled"}[task.method]


def _problem_document(finding: DataFinding) -> Json:
    return {
        "code": finding.code,
        "message": _escape_surrogates(finding.message)[:_MAX_MESSAGE],
        "is_error": finding.is_error,
    }


def _escape_surrogates(text: str) -> str:
    """Replace halves of surrogate pairs, which UTF-8 cannot carry."""
    return text.encode("utf-8", "backslashreplace").decode()


def main() -> int:
    """Preview rows of standard input and print the result."""
    task = Task.from_json(sys.argv[1])
    limit_process()
    try:
        result: Json = {
            "preview": preview_rows(
                read_tokenizer(Path(task.folder), task.method),
                task,
                numbered_lines(sys.stdin.buffer),
            )
        }
    except UnusableTokenizer as error:
        result = {"unusable": str(error)}
    print(json.dumps(result), flush=True)  # noqa: T201 - the service reads it
    return 0


if __name__ == "__main__":
    sys.exit(main())
