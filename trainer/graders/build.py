"""Build the grader that a run spec's grader object describes."""

import json
from collections.abc import Sequence
from pathlib import Path

from trainer.contract.grader_source import check_sources
from trainer.contract.grader_spec import (
    GraderSpec,
    MultiGrader,
    PythonGrader,
    RewardModelGrader,
    parse_grader,
    sources,
)
from trainer.graders.answer import Grade, Grader, ModelAnswer
from trainer.graders.multi import FormulaGrader
from trainer.graders.sandbox.process import SECONDS, Sandbox
from trainer.graders.text import TextComparisonGrader


def make_grader(spec_json: str, folder: Path, judge: Grader | None = None) -> Grader:
    """Build the grader; raise ValueError for one that `parse_grader` or `check_sources` refuses.

    Processes start at the first grade, in the calling thread, and end with that thread or `close`.

    Args:
        folder: Emptied for python graders; each rank has its own.
        judge: The reward model, where the machine has one.
    """
    spec = parse_grader(json.loads(spec_json))
    check_sources(sources(spec, "grader"))
    return _build(spec, folder, judge)


def _build(spec: GraderSpec, folder: Path, judge: Grader | None) -> Grader:
    if isinstance(spec, RewardModelGrader):
        if judge is None:
            raise ValueError("a `reward_model` is asked on the machines that train, and not here")
        return judge
    if isinstance(spec, MultiGrader):
        parts = {name: _build(part, folder / name, judge) for name, part in spec.graders.items()}
        return FormulaGrader(parts, spec.calculate_output)
    if isinstance(spec, PythonGrader):
        return PythonCodeGrader(spec, folder / "python")
    return TextComparisonGrader(spec)


class PythonCodeGrader:
    """Calls one sandboxed process for every grade, one after the other."""

    def __init__(self, spec: PythonGrader, folder: Path, seconds: float = SECONDS) -> None:
        """Use ``folder``, which is emptied, as the process's working folder."""
        self._sandbox = Sandbox(spec.source, folder, seconds)

    def grade(self, answers: Sequence[ModelAnswer]) -> list[Grade]:
        """Return `grade`'s result for each; raise SandboxError if no process can start."""
        return [self._sandbox.grade(answer) for answer in answers]

    def close(self) -> None:
        """End the process."""
        self._sandbox.close()
