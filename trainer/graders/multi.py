"""The `multi` grader: a formula over the scores of other graders."""

import math
from collections.abc import Mapping, Sequence

from trainer.contract.grader_formula import compute
from trainer.graders.answer import Grade, GradeFault, Grader, ModelAnswer


class FormulaGrader:
    """Grades with every part, then computes; a part's error makes the score 0.0."""

    def __init__(self, parts: Mapping[str, Grader], formula: str) -> None:
        """Take a ``formula`` that `parse_grader` has checked, over the names of ``parts``."""
        self._parts, self._formula = parts, formula

    def grade(self, answers: Sequence[ModelAnswer]) -> list[Grade]:
        """Return the formula's value for each answer."""
        columns = [part.grade(answers) for part in self._parts.values()]
        rows = zip(*columns, strict=True)
        return [self._combine(dict(zip(self._parts, row, strict=True))) for row in rows]

    def close(self) -> None:
        """Close every part."""
        for part in self._parts.values():
            part.close()

    def _combine(self, grades: Mapping[str, Grade]) -> Grade:
        failed = {name: grade for name, grade in grades.items() if grade.error}
        if failed:
            errors = "; ".join(f"{name}: {grade.error}" for name, grade in failed.items())
            return Grade(0.0, errors, next(iter(failed.values())).fault, grades)
        try:
            score = compute(self._formula, {name: grade.score for name, grade in grades.items()})
        except (ArithmeticError, ValueError) as e:
            return Grade(0.0, f"calculate_output: {e}", GradeFault.FORMULA, grades)
        if not math.isfinite(score):
            return Grade(
                0.0, f"calculate_output: {score} is not finite", GradeFault.FORMULA, grades
            )
        return Grade(score, parts=grades)
