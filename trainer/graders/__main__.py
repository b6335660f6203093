"""`python -m trainer.graders GRADER.json ROWS.jsonl`: try a grader on answers before a job.

Each row is one of the training file with an additional member `output_text`: the answer to grade.
Prints a line for each row, and the mean. Exits with status 1 when the grader is refused or any
answer got an error.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from trainer.graders.answer import Grade, ModelAnswer, divide_row
from trainer.graders.build import make_grader
from trainer.graders.sandbox.process import SandboxError


def main(arguments: Sequence[str] | None = None) -> None:
    """Read both files and grade."""
    parser = argparse.ArgumentParser(
        prog="python -m trainer.graders",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("grader", type=Path)
    parser.add_argument("rows", type=Path)
    options = parser.parse_args(arguments)
    try:
        grades = _grades(options.grader, options.rows)
    except (ValueError, OSError, SandboxError) as e:
        sys.exit(f"not graded: {e}")
    for i, grade in enumerate(grades, 1):
        sys.stdout.write(f"{i}\t{grade.score:g}\t{grade.error}\n")
    mean = sum(grade.score for grade in grades) / max(len(grades), 1)
    sys.stdout.write(f"mean\t{mean:g}\tof {len(grades)}\n")
    sys.exit(1 if any(grade.error for grade in grades) else 0)


def _grades(grader_file: Path, rows: Path) -> list[Grade]:
    answers = [_answer(n, line) for n, line in enumerate(rows.read_text().splitlines(), 1) if line]
    with tempfile.TemporaryDirectory() as folder:
        grader = make_grader(grader_file.read_text(), Path(folder))
        try:
            return grader.grade(answers)
        finally:
            grader.close()


def _answer(number: int, line: str) -> ModelAnswer:
    try:
        row = json.loads(line)
    except ValueError as e:
        raise ValueError(f"line {number}: {e}") from None
    if not isinstance(row, dict) or not isinstance(row.get("output_text"), str):
        raise ValueError(f"line {number}: an object with a text `output_text` is needed")
    return ModelAnswer(row.pop("output_text"), *divide_row(row))


if __name__ == "__main__":
    main()
