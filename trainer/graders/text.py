"""Graders that compare two texts: string_check, text_similarity and exact_answer."""

from collections.abc import Callable, Sequence

from trainer.grader_spec import ExactAnswer, Operation, StringCheck, TextGrader, TextSimilarity
from trainer.graders.answer import Answer, Grade, UngradableAnswer
from trainer.graders.final_answer import same_answer
from trainer.graders.similarity import similarity
from trainer.graders.templates import Template

_CHECKS: dict[Operation, Callable[[str, str], bool]] = {
    Operation.EQ: lambda text, reference: text == reference,
    Operation.NE: lambda text, reference: text != reference,
    Operation.LIKE: lambda text, reference: reference in text,
    Operation.ILIKE: lambda text, reference: reference.casefold() in text.casefold(),
}


class Text:
    """Fills in both templates of an answer and compares them."""

    def __init__(self, spec: TextGrader) -> None:
        """One for each of the three types."""
        self._input, self._reference = Template(spec.input), Template(spec.reference)
        self._compare = _comparison(spec)

    def grade(self, answers: Sequence[Answer]) -> list[Grade]:
        """From 0 to 1."""
        return [self._one(answer) for answer in answers]

    def close(self) -> None:
        """Nothing was started."""

    def _one(self, answer: Answer) -> Grade:
        try:
            text, reference = self._input.fill(answer), self._reference.fill(answer)
        except UngradableAnswer as e:
            return Grade(0.0, str(e), e.fault)
        return Grade(float(self._compare(text, reference)))


def _comparison(
    spec: TextGrader,
) -> Callable[[str, str], float]:
    match spec:
        case StringCheck():
            return _CHECKS[spec.operation]
        case TextSimilarity():
            metric = spec.evaluation_metric
            return lambda text, reference: similarity(metric, text, reference)
        case ExactAnswer():
            return same_answer
