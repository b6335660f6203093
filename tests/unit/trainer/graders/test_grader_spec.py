"""Grader objects are refused by the name of the member at fault, before anything is paid for."""

from typing import Any

import pytest

from trainer.contract import missing_fields, parse_grader, sources, template_fields
from trainer.contract.grader_formula import compute
from trainer.contract.grader_source import check_sources

CHECK = {
    "type": "string_check",
    "name": "same",
    "input": "{{ sample.output_text }}",
    "reference": "{{item.target.word}}",
    "operation": "eq",
}
PYTHON = {"type": "python", "source": "def grade(sample, item):\n    return 1.0\n"}
MULTI = {
    "type": "multi",
    "graders": {"same": CHECK, "short": PYTHON},
    "calculate_output": "0.8 * same + 0.2 * short",
}


@pytest.mark.parametrize("grader", [CHECK, PYTHON, MULTI], ids=lambda grader: grader["type"])
def test_a_grader_comes_back_from_its_own_json(grader: dict[str, Any]) -> None:
    spec = parse_grader(grader)

    assert parse_grader(spec.to_plain()) == spec


def test_the_members_that_templates_read_are_known() -> None:
    short_check = {**CHECK, "input": "{{item.prefix}} {{ sample.output_json.x.0 }}"}
    spec = parse_grader({**MULTI, "graders": {"same": CHECK, "short": short_check}})

    assert template_fields(spec) == ("prefix", "target.word")
    assert missing_fields(spec, {"prefix": "", "target": {"word": None}}) == ("target.word",)
    assert missing_fields(spec, {"prefix": "", "target": {"word": "x"}}) == ()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"type": "magic"}, "grader.type: 'magic' is none of string_check"),
        ({"type": "score_model"}, "grader.type: `score_model` asks another model"),
        ({"type": "label_model"}, "use `python`"),
        ({"operation": "neq"}, "grader.operation: 'neq' is none of eq, ne, like, ilike"),
        ({"weight": 1}, "grader: unknown member 'weight'"),
        ({"reference": "{{ row.x }}"}, "grader.reference: nothing is called 'row.x'"),
        ({"reference": "{{ item.x | upper }}"}, "grader.reference: 'item.x | upper' cannot stand"),
        ({"reference": "{{ item.x "}, "grader.reference: a `{{` has no `}}`"),
        ({"reference": "{{ item.x }}" * 1001}, "grader.reference: more than 1000 pairs of braces"),
        ({"reference": f"{{{{ item.{'x' * 1000} }}}}"}, "cannot stand in braces"),
    ],
)
def test_a_wrong_string_check_is_refused(changes: dict[str, Any], expected: str) -> None:
    assert expected in _refusal({**CHECK, **changes})


@pytest.mark.parametrize("metric", ["cosine", "meteor"])
def test_a_metric_that_needs_what_nodes_lack_is_refused_with_the_reason(metric: str) -> None:
    grader = {"type": "text_similarity", "input": "", "reference": "", "evaluation_metric": metric}

    message = _refusal(grader)

    assert message.startswith(f"grader.evaluation_metric: `{metric}` needs ")
    assert "rouge_l" in message


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def grade(sample, item:\n  pass", "line 1: '(' was never closed"),
        ("x = 1", "no function `grade`"),
        ("def grade(sample): return 1", "line 1: `grade` takes two arguments"),
        ("async def grade(a, b): return 1", "line 1: `grade` is async"),
        ("-" * 32_000 + "1", "nested too deeply"),
        ("\0", "null bytes"),
        ("'\ud800'", "surrogates not allowed"),
        ("#" * 32_769, "longer than 32768 bytes"),
    ],
)
def test_a_source_that_cannot_work_is_refused(source: str, expected: str) -> None:
    refusal = _refusal({"type": "python", "source": source})

    assert refusal.startswith("grader.source: ")
    assert expected in refusal


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("same + shrot", "no grader is called 'shrot'; there are: same, short"),
        ("same", "grader 'short' is not in it"),
        ("same + short.real", "what stands at character 8 is not known"),
        ("__import__('os') + same", "what stands at character 1 is not known"),
        ("abs(same, short)", "abs takes one value"),
        ("-" * 900 + "same", "more than 50 operations"),
        ("same " * 300, "longer than 1000 characters"),
    ],
)
def test_a_formula_that_is_no_arithmetic_over_the_graders_is_refused(
    formula: str, expected: str
) -> None:
    assert _refusal({**MULTI, "calculate_output": formula}).startswith("grader.calculate_output: ")
    assert expected in _refusal({**MULTI, "calculate_output": formula})


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({}, "grader.graders: 1 to 16"),
        ({"max": CHECK}, "grader.graders.max: the formula cannot use that name"),
        ({"a": MULTI}, "grader.graders.a.type: a multi grader cannot be part of another"),
        ({"a": {"type": "python"}}, "grader.graders.a.source: missing"),
        ({"a": 3}, "grader.graders.a: an object is needed"),
    ],
)
def test_a_wrong_part_is_named(parts: dict[str, Any], expected: str) -> None:
    assert _refusal({**MULTI, "graders": parts, "calculate_output": "a"}).startswith(expected)


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        ("2 * a ^ 2 + 1", 19.0),
        ("-a ^ 2", -9.0),
        ("min(a, 1) + max(a, b, 7) - min(b)", 4.0),
        ("floor(a / 2) + ceil(a / 2)", 3.0),
        ("exp(0) + log(exp(a)) + sqrt(b) + abs(-a)", 9.0),
    ],
)
def test_formulas_are_computed_as_written(formula: str, value: float) -> None:
    names = {"a": 3.0, "b": 4.0}

    assert compute(formula, names) == pytest.approx(value)


def _refusal(grader: object) -> str:
    with pytest.raises(ValueError, match="grader") as refused:
        check_sources(sources(parse_grader(grader), "grader"))
    return str(refused.value)
