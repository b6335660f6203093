"""Graders that compare two texts: string_check, text_similarity and exact_answer."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from trainer.contract.grader_spec import (
    ExactAnswer,
    StringCheck,
    StringOperation,
    TextGrader,
    TextSimilarity,
)
from trainer.contract.grader_templates import TemplateField, find_member, parse_template
from trainer.graders.answer import Grade, GradeFault, ModelAnswer, UngradableAnswer
from trainer.graders.final_answer import same_answer
from trainer.graders.similarity import similarity

_CHECKS: dict[StringOperation, Callable[[str, str], bool]] = {
    StringOperation.EQ: lambda text, reference: text == reference,
    StringOperation.NE: lambda text, reference: text != reference,
    StringOperation.LIKE: lambda text, reference: reference in text,
    StringOperation.ILIKE: lambda text, reference: reference.casefold() in text.casefold(),
}


class TextComparisonGrader:
    """Fills both templates for an answer and compares the results."""

    def __init__(self, spec: TextGrader) -> None:
        """Prepare the templates of any of the three types."""
        self._input, self._reference = AnswerTemplate(spec.input), AnswerTemplate(spec.reference)
        self._compare = _comparison(spec)

    def grade(self, answers: Sequence[ModelAnswer]) -> list[Grade]:
        """Return a score from 0 to 1 for each answer."""
        return [self._grade_answer(answer) for answer in answers]

    def close(self) -> None:
        """Do nothing: there is no process."""

    def _grade_answer(self, answer: ModelAnswer) -> Grade:
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


class AnswerTemplate:
    """A parsed template, to be filled for each answer."""

    def __init__(self, template: str) -> None:
        """Parse the template; raise ValueError for one that `parse_grader` would refuse."""
        self._parts = parse_template(template, "template")

    def fill(self, answer: ModelAnswer) -> str:
        """Return the text; raise UngradableAnswer where row or answer lack a member."""
        return "".join(p if isinstance(p, str) else _fill(p, answer) for p in self._parts)


def _fill(hole: TemplateField, answer: ModelAnswer) -> str:
    if hole.namespace == "output_text":
        return answer.text
    document = answer.item if hole.namespace == "item" else _json(answer.text)
    try:
        value = find_member(document, hole.path)
    except KeyError:
        raise UngradableAnswer(f"{hole}: missing or null", GradeFault.INVALID_VARIABLE) from None
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _json(text: str) -> Any:  # noqa: ANN401 - what json.loads gives
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise UngradableAnswer(
            "sample.output_json: the answer is not JSON", GradeFault.SAMPLE_PARSE
        ) from None
