"""Graders are tried by the service as a training run would use them, and no code of users is."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

from service.preflight.graders import GraderProcess
from tests.world import World
from trainer.graders.answer import ModelAnswer
from trainer.graders.build import make_grader

RUN = "/v1/fine_tuning/alpha/graders/run"
VALIDATE = "/v1/fine_tuning/alpha/graders/validate"
Json = dict[str, Any]
SAMPLE = '{"word": "The cat sat", "n": 3, "list": ["a"]}'
ITEM = {
    "messages": [{"role": "user", "content": "?"}],
    "word": "the cat ate it",
    "answer": "#### 3",
    "deep": {"list": [{"x": "cat"}]},
    "long": "word " * 2000,
}


def comparing(kind: str, **members: str) -> Json:
    return {
        "type": kind,
        "input": "{{ sample.output_json.word }}",
        "reference": "{{ item.word }}",
    } | members


def multi(formula: str, **graders: Json) -> Json:
    return {"type": "multi", "name": "all", "graders": graders, "calculate_output": formula}


CHECK = comparing("string_check", operation="ilike", reference="{{item.deep.list.0.x}}")
EXACT = comparing("exact_answer", input="{{sample.output_json.n}}", reference="{{item.answer}}")
GRADERS = [
    CHECK,
    EXACT,
    *(
        comparing("text_similarity", evaluation_metric=metric)
        for metric in ("fuzzy_match", "bleu", "gleu", "rouge_1", "rouge_5", "rouge_l")
    ),
    comparing("text_similarity", evaluation_metric="rouge_l", reference="{{item.long}}"),
    comparing("string_check", operation="ne", input="{{ sample.output_text }}"),
    comparing("string_check", operation="eq", input="{{ sample.output_json.none }}"),
    comparing("string_check", operation="eq", input="{{ item.messages.0.role }}"),
    multi("max(check, 0.5) ^ 2 - exact / 4", check=CHECK, exact=EXACT),
    multi("1 / (check - exact)", check=CHECK, exact=EXACT),
    multi("check + gone", check=CHECK, gone=CHECK | {"reference": "{{ item.gone }}"}),
]


async def test_a_valid_grader_is_answered_as_it_was_sent(world: World) -> None:
    for grader in GRADERS:
        response = await world.call("POST", VALIDATE, json={"grader": grader})

        assert (response.status_code, response.json()) == (200, {"grader": grader})


async def test_the_service_grades_as_a_training_run_does(world: World, tmp_path: Path) -> None:
    item = {name: value for name, value in ITEM.items() if name != "messages"}
    for grader in GRADERS:
        built_grader = make_grader(json.dumps(grader), tmp_path)
        (expected,) = built_grader.grade([ModelAnswer(SAMPLE, item)])

        result = await run(world, grader)

        assert result["reward"] == expected.score, grader
        assert (result["metadata"]["errors"]["details"] or "") == expected.error
        rewards = {name: part.score for name, part in expected.parts.items()}
        assert result["sub_rewards"] == result["metadata"]["scores"] == rewards


async def test_the_answer_is_openais(world: World) -> None:
    combined = multi("check + 2 * exact", check=CHECK, exact=EXACT)

    result = await run(world, combined)

    seconds = result["metadata"].pop("execution_time")
    assert 0 <= seconds < 60
    assert result == {
        "reward": 3.0,
        "metadata": {
            "name": "all",
            "type": "multi",
            "errors": dict.fromkeys(
                (
                    *("formula_parse_error", "sample_parse_error", "truncated_observation_error"),
                    *("unresponsive_reward_error", "invalid_variable_error", "other_error"),
                    *("python_grader_server_error", "python_grader_runtime_error"),
                    *("model_grader_server_error", "model_grader_refusal_error"),
                    "model_grader_parse_error",
                ),
                False,
            )
            | dict.fromkeys(
                (
                    *("python_grader_server_error_type", "python_grader_runtime_error_details"),
                    *("model_grader_server_error_details", "details"),
                )
            ),
            "scores": {"check": 1.0, "exact": 1.0},
            "token_usage": None,
            "sampled_model_name": None,
        },
        "sub_rewards": {"check": 1.0, "exact": 1.0},
        "model_grader_token_usage_per_model": {},
    }


async def test_a_grader_error_has_its_kind_and_details(world: World) -> None:
    missing_field = CHECK | {"input": "{{ item.gone }}"}
    cases: list[tuple[Json, str, set[str]]] = [
        (CHECK | {"reference": "{{item.gone}}"}, SAMPLE, {"invalid_variable_error"}),
        (CHECK, "no JSON", {"sample_parse_error"}),
        (multi("1 / (a - 1)", a=CHECK), SAMPLE, {"formula_parse_error"}),
        (
            multi("a + b", a=CHECK, b=missing_field),
            "no JSON",
            {"sample_parse_error", "invalid_variable_error"},
        ),
    ]
    for grader, sample, reason in cases:
        response = await run(world, grader, sample)

        errors = response["metadata"]["errors"]
        assert response["reward"] == 0.0
        assert {name for name, value in errors.items() if value is True} == reason
        assert errors["details"]


async def test_slow_graders_are_stopped_and_delay_no_request(world: World) -> None:
    """Without a process each of them would hold Python's lock for many seconds."""
    tries = GraderProcess(cpu_seconds=1, seconds=250.0)
    texts = ["abcdefgh" * 60_000, "hgfedcba" * 60_000]
    similar = comparing("text_similarity", evaluation_metric="fuzzy_match", input=texts[0])
    grading = asyncio.gather(
        tries.run(similar | {"reference": texts[1]}, "", {}),
        tries.run(similar | {"reference": texts[1][1:]}, "", {}),
        return_exceptions=True,
    )
    longest = 0.0
    while not grading.done():
        start = time.monotonic()
        assert (await world.http.get("/livez")).status_code == 200
        longest = max(longest, time.monotonic() - start)
        await asyncio.sleep(0)

    codes = [getattr(error, "code", error) for error in await grading]
    assert codes == ["grader_too_slow"] * 2
    assert longest < 5


async def run(world: World, grader: Json, sample: str = SAMPLE) -> Json:
    response = await world.call("POST", RUN, json=body(grader, sample))
    assert response.status_code == 200, response.text
    result: Json = response.json()
    return result


def body(grader: Json, sample: str = SAMPLE) -> Json:
    return {"grader": grader, "model_sample": sample, "item": ITEM}
