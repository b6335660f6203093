"""Graders that compare two texts: string_check, text_similarity and exact_answer."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from trainer.contract.grader_spec import (
    ExactAnswer,
    Operation,
    StringCheck,
    TextGrader,
    TextSimilarity,
)
from trainer.contract.grader_templates import Hole, find_member, parse_template
from trainer.graders.answer import Answer, Fault, Grade, UngradableAnswer
from trainer.graders.final_answer import same_answer
from trainer.graders.similarity import similarity

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


class Template:
    """A template that was read once, to be filled in for each answer."""

    def __init__(self, template: str) -> None:
        """Raise ValueError for one that `parse_grader` would refuse."""
        self._parts = parse_template(template, "template")

    def fill(self, answer: Answer) -> str:
        """The text; raise UngradableAnswer where row or answer lack what it asks for."""
        return "".join(p if isinstance(p, str) else _filled(p, answer) for p in self._parts)


def _filled(hole: Hole, answer: Answer) -> str:
    if hole.namespace == "output_text":
        return answer.text
    document = answer.item if hole.namespace == "item" else _json(answer.text)
    try:
        value = find_member(document, hole.path)
    except KeyError:
        raise UngradableAnswer(f"{hole}: missing or null", Fault.INVALID_VARIABLE) from None
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _json(text: str) -> Any:  # noqa: ANN401 - what json.loads gives
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise UngradableAnswer(
            "sample.output_json: the answer is not JSON", Fault.SAMPLE_PARSE
        ) from None
