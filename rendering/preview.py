"""Show rows as a training run would read them: `python -m rendering.preview TASK < FILE`.

Prints one line of JSON. Limits are those of the preflight, whose findings it names.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

from rendering.limits import limit_process, limited_row
from rendering.preflight import Line, Preflight, numbered
from rendering.rows import RowError, parse
from rendering.sequences import RowReader, Sequence, SplitNeeded
from rendering.task import Task
from rendering.template import RenderError
from rendering.tokenizer import Tokenizer, UnusableTokenizer, load
from rendering.tokens import trained_tokens

LONGEST = 20_000  # characters of one example that are shown
CONTEXT, TRAINED, CUT = "context", "trained", "cut"

Json = dict[str, Any]


def preview(tokenizer: Tokenizer, task: Task, lines: list[Line]) -> list[Json]:
    """Return the examples of each row as segments of text, with the row's problems."""
    try:
        return [_row(tokenizer, task, line) for line in lines]
    except SplitNeeded:
        return preview(tokenizer, replace(task, splits_answers=True), lines)


def wanted(lines: Iterator[Line], task: Task) -> list[Line]:
    """The rows from line ``task.first_line`` on, as many as are asked for."""
    later = (line for line in lines if line[0] >= task.first_line)
    return list(islice(later, task.most_rows))


def _row(tokenizer: Tokenizer, task: Task, line: Line) -> Json:
    with limited_row():
        checked = Preflight(tokenizer, task)
        checked.add([line])
        found = checked.report(0.0).findings
        try:
            sequences = RowReader(tokenizer, task).sequences(parse(line[1]))
        except (RenderError, RowError):
            sequences = []
        return {
            "line": line[0],
            "examples": [_example(tokenizer, task, one) for one in sequences],
            "problems": [
                {"code": f.code, "message": f.message, "is_error": f.is_error} for f in found
            ],
        }


def _example(tokenizer: Tokenizer, task: Task, sequence: Sequence) -> Json:
    encoding, rendered = tokenizer.encode(sequence.text), sequence.rendered
    trained = trained_tokens(encoding, rendered) if rendered else [False] * len(encoding)
    room = task.room
    kinds = [CONTEXT] * len(sequence.text)
    for number, (start, end) in enumerate(encoding.offsets):
        kind = CUT if number >= room else TRAINED if trained[number] else CONTEXT
        kinds[start:end] = [kind] * (end - start)
    return {
        "tokens": len(encoding),
        "kept_tokens": min(len(encoding), room),
        "trained_tokens": sum(trained[:room]),
        "label": sequence.row.get("label") if task.method == "classification" else None,
        "segments": list(_segments(sequence.text, kinds)),
    }


def _segments(text: str, kinds: list[str]) -> Iterator[Json]:
    """Neighbours of one kind together; a long text is shown from its start."""
    shown = zip(text[:LONGEST], kinds, strict=False)
    for kind, pairs in groupby(shown, key=itemgetter(1)):
        yield {"kind": kind, "text": "".join(character for character, _ in pairs)}
    if len(text) > LONGEST:
        yield {"kind": CONTEXT, "text": f" ... {len(text) - LONGEST:,} more characters"}


def main() -> int:
    """Read as many rows of standard input as are asked for, and print them."""
    task = Task.from_json(sys.argv[1])
    limit_process()
    try:
        lines = wanted(numbered(sys.stdin.buffer), task)
        told: Json = {"preview": preview(load(Path(task.folder)), task, lines)}
    except UnusableTokenizer as error:
        told = {"unusable": str(error)}
    print(json.dumps(told), flush=True)  # noqa: T201 - the service reads it
    return 0


if __name__ == "__main__":
    sys.exit(main())
