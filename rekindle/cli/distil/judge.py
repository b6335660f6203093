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


def question(messages: list[Json], answer: str) -> list[Json]:
    """Return the messages that ask a judge to grade this answer."""
    told = "\n\n".join(f"{m['role']}: {_text(m['content'])}" for m in messages)
    return [{"role": "user", "content": _TASK.format(conversation=told, answer=answer)}]


def number(said: str) -> float | None:
    """Return the judge's grade; None if the reply is not exactly a number from 1 to 10."""
    found = _NUMBER.fullmatch(said)
    return float(found[1]) if found else None


def grades(grader: Json, answers: Iterable[tuple[Json, str]]) -> list[float | None]:
    """Return the grade of each answer, None on error; raise CliError for an invalid grader."""
    with tempfile.TemporaryDirectory() as name:
        asked, rows = Path(name) / "grader.json", Path(name) / "rows.jsonl"
        asked.write_text(json.dumps(grader), encoding="utf-8")
        with rows.open("w", encoding="utf-8") as lines:
            wanted = 0
            for wanted, (item, text) in enumerate(answers, 1):  # noqa: B007 - how many there were
                lines.write(json.dumps(item | {"output_text": text}) + "\n")
        command = [sys.executable, "-m", "trainer.graders", str(asked), str(rows)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    found = _read(ended.stdout)
    if len(found) != wanted or _MEAN not in f"\n{ended.stdout}":
        raise _broken(ended.stderr)
    return found


def _read(printed: str) -> list[float | None]:
    """Read grades from the printed table; error texts may contain line breaks."""
    found: list[float | None] = []
    for line in printed.splitlines():
        graded = _GRADED.fullmatch(line)
        if graded and int(graded[1]) == len(found) + 1:
            found.append(None if graded[3] else float(graded[2]))
    return found


def _broken(said: str) -> CliError:
    last = (said.strip().splitlines() or ["no output"])[-1]
    missing = "No module named" in last
    return CliError(
        f"The candidates could not be graded: {last}",
        "Graders need the trainer: pip install 'rekindle[trainer]'."
        if missing
        else "See docs/graders.md for valid graders.",
        code="broken_grader",
    )


def _text(content: str | list[Json]) -> str:
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content)
