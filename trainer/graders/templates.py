"""Filled-in templates: what `{{ item.x }}` and `{{ sample.output_text }}` stand for."""

import json
from typing import Any

from trainer.grader_templates import Hole, find_member, parse_template
from trainer.graders.answer import Answer, Fault, UngradableAnswer


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
