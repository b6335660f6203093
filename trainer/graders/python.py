"""The `python` grader: the user's `grade(sample, item)`."""

from collections.abc import Sequence
from pathlib import Path

from trainer.contract.grader_spec import PythonGrader
from trainer.graders.answer import Grade, ModelAnswer
from trainer.graders.sandbox.process import SECONDS, Sandbox


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
