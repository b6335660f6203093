"""What graders of text give, against values worked out by hand."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from trainer.contract.grader_spec import Metric
from trainer.graders.answer import Grade, GradeFault, ModelAnswer
from trainer.graders.build import make_grader
from trainer.graders.final_answer import same_answer
from trainer.graders.sandbox.seccomp import MACHINES, filter_program
from trainer.graders.sandbox.syscalls import (
    ALLOWED,
    ANSWERS,
    ENOSYS,
    EPERM,
    FIRST_UNKNOWN,
    WITH_VALUE,
    WITHOUT_BITS,
)
from trainer.graders.similarity import similarity

KILL, REFUSE, ALLOW = 0x80000000, 0x00050000, 0x7FFF0000  # what a filter returns; linux/seccomp.h


@pytest.mark.parametrize(
    ("operation", "reference", "score"),
    [
        ("eq", "The Cat", 1.0),
        ("eq", "the cat", 0.0),
        ("ne", "the cat", 1.0),
        ("like", "Cat", 1.0),
        ("like", "cat", 0.0),
        ("ilike", "cat", 1.0),
        ("ilike", "dog", 0.0),
    ],
)
def test_string_check_compares(
    operation: str, reference: str, score: float, tmp_path: Path
) -> None:
    grader = _check(operation, "{{sample.output_text}}", "{{ item.word }}")

    assert _grade(grader, "The Cat", {"word": reference}, tmp_path) == Grade(score)


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ item.n }}/{{ item.words.1 }}", '3/"'),
        ("{{ item.words }}", '["a", "\\""]'),
        ("{{ sample.output_json.x.y }}", "ü"),
        ("{ {{ sample.output_text }} }", '{ {"x": {"y": "ü"}} }'),
    ],
)
def test_templates_are_filled_in(template: str, text: str, tmp_path: Path) -> None:
    grader = _check("eq", template, "{{ item.expected }}")
    item = {"n": 3, "words": ["a", '"'], "expected": text}

    assert _grade(grader, '{"x": {"y": "ü"}}', item, tmp_path) == Grade(1.0)


@pytest.mark.parametrize(
    ("template", "error", "fault"),
    [
        ("{{ item.none.x }}", "item.none.x: missing or null", GradeFault.INVALID_VARIABLE),
        (
            "{{ sample.output_json.x }}",
            "sample.output_json: the answer is not JSON",
            GradeFault.SAMPLE_PARSE,
        ),
        (
            f"{{{{ item.list.{'9' * 900} }}}}",
            f"item.list.{'9' * 900}: missing or null",
            GradeFault.INVALID_VARIABLE,
        ),
    ],
)
def test_what_a_template_does_not_find_is_an_error_and_no_points(
    template: str, error: str, fault: GradeFault, tmp_path: Path
) -> None:
    grade = _grade(_check("ne", template, "x"), "[" * 9999, {"none": None, "list": [1]}, tmp_path)

    assert grade == Grade(0.0, error, fault)


# "the cat sat" against "the cat ate it": 2 of 3 words and of 4 words, 1 of 2 and of 3 pairs.
@pytest.mark.parametrize(
    ("metric", "value"),
    [
        (Metric.ROUGE_1, 2 * 2 / (3 + 4)),
        (Metric.ROUGE_2, 2 * 1 / (2 + 3)),
        (Metric.ROUGE_5, 0.0),
        (Metric.ROUGE_L, 2 * 2 / (3 + 4)),
        (Metric.GLEU, (2 + 1) / (4 + 3 + 2 + 1)),
        (Metric.BLEU, 2.718281828459045 ** (1 - 4 / 3) * (2 / 3 * 2 / 3 * 1 / 2 * 1) ** 0.25),
        (Metric.FUZZY_MATCH, 2 * 9 / (11 + 14)),  # characters in both, in order: "he cat at"
    ],
)
def test_similarities_are_what_their_papers_say(metric: Metric, value: float) -> None:
    assert similarity(metric, "The cat sat", "the cat ate it") == pytest.approx(value)


@pytest.mark.parametrize("metric", Metric)
def test_equal_texts_are_wholly_similar_and_empty_ones_do_no_harm(metric: Metric) -> None:
    assert similarity(metric, "one two three four five", "one two three four five") == 1.0
    assert similarity(metric, "", "one") == 0.0
    assert similarity(metric, "one", "") == 0.0


@pytest.mark.parametrize(
    ("text", "reference", "same"),
    [
        ("So we get \\boxed{42}.", "3 + 39 = <<3+39=42>>42\n#### 42", True),
        ("That makes 1,200 dollars, not 3", "#### 3", True),
        ("**Answer:** x = 1/2", "\\boxed{\\frac{1}{2}}", True),
        ("Answer: Paris.", "answer: paris", True),
        ("first 42, then 41", "42", False),
        ("\\boxed{\\sqrt{3}}", "3", False),
        ("A: $1,200.00", "1200", True),
        ("Paris", "#### Paris", True),
        ("It is Paris", "#### Paris", False),
        ("I do not know", "3", False),
        ("Paris", "Paris", True),
        ("Let me think: 2 rivers.\nAnswer: Paris", "Paris", True),
        ("\\boxed{Paris}", "Paris", True),
        ("**Paris**\r\n", "Paris", True),
        ("Paris.", "It is in France.\nAnswer: Paris", True),
        ("It is Paris", "Paris", False),
        ("Answer: Rome, not\nParis", "Paris", False),
        ("", "Paris", False),
        ("", "", False),
        ("-3", "3", False),
        ("\\boxed{1", "1", True),
        ("9" * 5000, "9" * 5000, True),
    ],
)
def test_final_answers_are_compared_by_what_they_come_to(
    text: str, reference: str, same: bool
) -> None:
    assert same_answer(text, reference) is same


def test_a_multi_grader_computes_from_its_parts(tmp_path: Path) -> None:
    grader = _multi("0.75 * long + 0.25 * cat")

    assert _grade(grader, "long cat", {"n": 0}, tmp_path) == Grade(1.0)
    assert _grade(grader, "cat", {"n": 0}, tmp_path) == Grade(0.25)


def test_a_part_that_errs_takes_the_whole_grade(tmp_path: Path) -> None:
    grader = _multi("1 - long + cat", long="{{ item.gone }}")

    grade = _grade(grader, "cat", {"n": 0}, tmp_path)

    assert grade == Grade(0.0, "long: item.gone: missing or null", GradeFault.INVALID_VARIABLE)
    assert grade.parts["cat"] == Grade(1.0)


@pytest.mark.parametrize("formula", ["cat / long", "log(long) + cat", "(cat + 9 + long) ^ 999"])
def test_a_formula_without_a_value_is_an_error(formula: str, tmp_path: Path) -> None:
    grade = _grade(_multi(formula), "cat", {"n": 0}, tmp_path)

    assert grade.score == 0.0
    assert grade.error.startswith("calculate_output: ")
    assert grade.fault == GradeFault.FORMULA


def test_a_machine_whose_system_calls_are_not_known_gets_no_filter() -> None:
    with pytest.raises(OSError, match="no list of system calls for 'riscv64'"):
        filter_program("riscv64")


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_allows_what_the_list_has_and_refuses_all_else(machine: str) -> None:
    audit, column = MACHINES[machine]
    allowed = {call[column] for calls in ALLOWED.values() for call in calls.values()} - {-1}
    sometimes = {c[0][column] for c in (*WITHOUT_BITS.values(), *WITH_VALUE.values())} - {-1}
    answers = {numbers[column]: expected for numbers, expected in ANSWERS.values()}
    for number in (*range(FIRST_UNKNOWN + 10), 0x40000000 + 41, 0xFFFFFFFF):
        verdict = _said(filter_program(machine), audit, number, [0xFFFFFFFF] * 6)
        refused = ENOSYS if number >= FIRST_UNKNOWN else answers.get(number, EPERM)
        assert verdict == (ALLOW if number in allowed else REFUSE | refused), number
    for numbers, argument, _ in WITHOUT_BITS.values():
        arguments = [0xFFFFFFFF] * 6
        arguments[argument] = 0
        if numbers[column] >= 0:
            assert _said(filter_program(machine), audit, numbers[column], arguments) == ALLOW
    for numbers, argument, values in WITH_VALUE.values():
        for value in range(2000):
            arguments = [0] * 6
            arguments[argument] = value
            verdict = _said(filter_program(machine), audit, numbers[column], arguments)
            assert verdict == (ALLOW if value in values else REFUSE | EPERM)

    assert not allowed & sometimes
    assert 60 < len(allowed) < 80
    assert _said(filter_program(machine), audit ^ 1, 0, [0] * 6) == KILL


def _said(code: bytes, audit: int, number: int, arguments: list[int]) -> int:
    """Run the filter's BPF code by the kernel's rules and return its decision."""
    data = struct.pack("<IIQ6Q", number, audit, 0, *arguments)
    accumulator = at = 0
    operations = list(struct.iter_unpack("HBBI", code))
    while True:
        operation, if_true, if_false, value = operations[at]
        at += 1
        match operation:
            case 0x20:  # load a word
                (accumulator,) = struct.unpack_from("<I", data, value)
            case 0x06:  # return
                return int(value)
            case 0x15 | 0x35 | 0x45:  # jump if equal, if at least, if bits are set
                met = {
                    0x15: accumulator == value,
                    0x35: accumulator >= value,
                    0x45: accumulator & value,
                }[operation]
                at += if_true if met else if_false
            case _:
                raise AssertionError(f"an operation that the filter should not have: {operation}")


def _grade(grader: dict[str, Any], text: str, item: dict[str, Any], folder: Path) -> Grade:
    built = make_grader(json.dumps(grader), folder)
    (grade,) = built.grade([ModelAnswer(text, item)])
    built.close()
    return grade


def _check(operation: str, text: str, reference: str) -> dict[str, Any]:
    return {"type": "string_check", "input": text, "reference": reference, "operation": operation}


def _multi(formula: str, long: str = "{{ sample.output_text }}") -> dict[str, Any]:
    parts = {
        "long": _check("like", long, "long"),
        "cat": _check("like", "{{ sample.output_text }}", "cat"),
    }
    return {"type": "multi", "graders": parts, "calculate_output": formula}
