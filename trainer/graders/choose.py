"""The grader that a run spec's grader object describes."""

import json
from pathlib import Path

from trainer.grader_spec import GraderSpec, MultiGrader, PythonGrader, parse_grader
from trainer.graders.answer import Grader
from trainer.graders.multi import Multi
from trainer.graders.python import Python
from trainer.graders.text import Text


def make_grader(spec_json: str, folder: Path) -> Grader:
    """Make it; raise ValueError for an object that `parse_grader` refuses.

    ``folder`` is this rank's own: python graders get folders below it, which are emptied. Processes
    start at the first grade, from the thread that asks for it, and end with that thread or `close`.
    """
    return _made(parse_grader(json.loads(spec_json)), folder)


def _made(spec: GraderSpec, folder: Path) -> Grader:
    if isinstance(spec, MultiGrader):
        parts = {name: _made(part, folder / name) for name, part in spec.graders.items()}
        return Multi(parts, spec.calculate_output)
    if isinstance(spec, PythonGrader):
        return Python(spec, folder / "python")
    return Text(spec)
