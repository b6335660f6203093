"""Try graders for the service in a process with limits: `python -m trainer.graders.limited`.

Reads one request from standard input and prints one line, or `{"refused": why}`:
`{"grader", "model_sample", "item"}` is answered by `{"reward", "rewards", "faults", "details",
"seconds"}`, and `{"sources": {where: source}}`, which only checks python graders, by `{}`.
`cpu_seconds` of a request end the process by SIGXCPU. The service's image holds this module and
what it imports: nothing that runs code of users.
"""

import json
import os
import resource
import sys
import time
from typing import Any

from trainer.contract.grader_source import check_sources
from trainer.contract.grader_spec import (
    GraderSpec,
    MultiGrader,
    PythonGrader,
    RewardModelGrader,
    TextGrader,
    parse_grader,
)
from trainer.graders.answer import Grader, ModelAnswer, divide_row
from trainer.graders.multi import FormulaGrader
from trainer.graders.text import TextComparisonGrader

MEMORY_BYTES = 1024**3  # of address space
NICE = 5
LONGEST_DETAILS = 1000  # characters
_ELSEWHERE = {
    PythonGrader: "`python` runs your code, and this service runs none; try the grader on your own"
    " machine: python -m trainer.graders GRADER.json ROWS.jsonl",
    RewardModelGrader: "`reward_model` asks a model on a GPU, and this service has none; try the"
    " other graders without it, here or with python -m trainer.graders",
}


def main() -> None:
    """Answer the request within the limits of this process."""
    _limit_process()
    request = json.load(sys.stdin)
    seconds = request["cpu_seconds"]
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    try:
        response = _answer(request)
    except ValueError as e:
        response = {"refused": str(e)}
    except MemoryError:
        response = {"refused": f"grader: needs more than {MEMORY_BYTES // 1024**2} MiB of memory"}
    sys.stdout.write(json.dumps(response) + "\n")


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    """Grade or check; raise ValueError that says what is wrong with the grader."""
    if "sources" not in request:
        return _run(request["grader"], request["model_sample"], request["item"])
    check_sources(request["sources"])
    return {}


def _run(definition: object, sample: str, row: dict[str, Any]) -> dict[str, Any]:
    grader = _build(parse_grader(definition), "grader")
    start = time.perf_counter()
    (grade,) = grader.grade([ModelAnswer(sample, *divide_row(row))])
    return {
        "reward": grade.score,
        "rewards": {name: part.score for name, part in grade.parts.items()},
        "faults": sorted(
            {result.fault for result in (grade, *grade.parts.values()) if result.error}
        ),
        "details": grade.error[:LONGEST_DETAILS],
        "seconds": time.perf_counter() - start,
    }


def _build(spec: GraderSpec, where: str) -> Grader:
    if isinstance(spec, MultiGrader):
        parts = {n: _build(part, f"{where}.graders.{n}") for n, part in spec.graders.items()}
        return FormulaGrader(parts, spec.calculate_output)
    if isinstance(spec, TextGrader):
        return TextComparisonGrader(spec)
    raise ValueError(f"{where}: {_ELSEWHERE[type(spec)]}")


def _limit_process() -> None:
    os.nice(NICE)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main()
