"""Grade candidates: by a judge model's number, or by a grader.

Graders run in the trainer's own program, so that grades equal those in training.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rekindle.cli.distil.prompts import ANSWER
from rekindle.cli.errors import CliError

Json = dict[str, Any]
EXACT: Json = {
    "type": "exact_answer",
    "input": "{{ sample.output_text }}",
    "reference": f"{{{{ item.{ANSWER} }}}}",
}
_TASK = """\
Below are a conversation and an answer to it. How good is the answer: is it right, complete and \
what was asked for? Reply with one whole number from 1 (useless) to 10 (it could not be better), \
and with nothing else.

<conversation>
{conversation}
</conversation>

<answer>
{answer}
</answer>"""
_NUMBER = re.compile(r"\s*(10|[1-9])\s*")
_MEAN = "\nmean\t"  # what a print-out ends with
_GRADED = re.compile(r"(\d+)\t(\S+)\t(.*)")


def judge_messages(messages: list[Json], answer: str) -> list[Json]:
    """Return the messages that ask a judge to grade this answer."""
    conversation = "\n\n".join(f"{m['role']}: {_plain_text(m['content'])}" for m in messages)
    return [{"role": "user", "content": _TASK.format(conversation=conversation, answer=answer)}]


def parse_grade(reply: str) -> float | None:
    """Return the judge's grade; None if the reply is not exactly a number from 1 to 10."""
    match = _NUMBER.fullmatch(reply)
    return float(match[1]) if match else None


def run_grader(grader: Json, answers: Iterable[tuple[Json, str]]) -> list[float | None]:
    """Return the grade of each answer, None on error; raise CliError for an invalid grader."""
    with tempfile.TemporaryDirectory() as name:
        grader_file, rows = Path(name) / "grader.json", Path(name) / "rows.jsonl"
        grader_file.write_text(json.dumps(grader), encoding="utf-8")
        with rows.open("w", encoding="utf-8") as lines:
            count = 0
            for count, (item, text) in enumerate(answers, 1):  # noqa: B007 - how many there were
                lines.write(json.dumps(item | {"output_text": text}) + "\n")
        command = [sys.executable, "-m", "trainer.graders", str(grader_file), str(rows)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    grades = _parse_grades(result.stdout)
    if len(grades) != count or _MEAN not in f"\n{result.stdout}":
        raise _grading_error(result.stderr)
    return grades


def _parse_grades(printed: str) -> list[float | None]:
    """Read grades from the printed table; error texts may contain line breaks."""
    grades: list[float | None] = []
    for line in printed.splitlines():
        match = _GRADED.fullmatch(line)
        if match and int(match[1]) == len(grades) + 1:
            grades.append(None if match[3] else float(match[2]))
    return grades


def _grading_error(stderr: str) -> CliError:
    last = (stderr.strip().splitlines() or ["no output"])[-1]
    missing = "No module named" in last
    return CliError(
        f"The candidates could not be graded: {last}",
        "Graders need the trainer: pip install 'rekindle[trainer]'."
        if missing
        else "See docs/graders.md for valid graders.",
        code="broken_grader",
    )


def _plain_text(content: str | list[Json]) -> str:
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content)
