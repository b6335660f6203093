"""A pipeline's file, and what comes next of it and of the jobs that there are."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from rekindle.cli.errors import CliError
from rekindle.cli.pipelines.pipeline_file import Pipeline, parse_pipeline, phase_tags, read_pipeline
from rekindle.cli.pipelines.pipeline_steps import (
    FollowJob,
    PipelineDone,
    SubmitPhase,
    job_to_retry,
    next_step,
)

BASE = "rekindle/tiny-llama"
SFT: dict[str, Any] = {"name": "sft", "model": BASE, "training_file": "chats.jsonl"}
JUDGE: dict[str, Any] = {
    "name": "judge",
    "model": "$sft",
    "training_file": "pairs.jsonl",
    "method": {"type": "reward"},
}
GRADER = {"type": "reward_model", "model": "$judge"}
RL: dict[str, Any] = {
    "name": "rl",
    "model": "$sft",
    "training_file": "file-0123",
    "method": {"type": "reinforcement", "reinforcement": {"grader": GRADER}},
}
DOCUMENT: dict[str, Any] = {"name": "helpful", "phases": [SFT, JUDGE, RL]}
PATH = Path("/data/pipeline.json")
MODELS = {"sft": f"ft:{BASE}:p::ftjob-1", "judge": f"ft:{BASE}:p::ftjob-2"}


def parsed(document: object = DOCUMENT) -> Pipeline:
    return parse_pipeline(document, PATH)


def changed(phase: int, **members: object) -> dict[str, Any]:
    document = copy.deepcopy(DOCUMENT)
    document["phases"][phase] |= members
    return document


def job(number: int, phase: str, status: str = "succeeded") -> dict[str, Any]:
    pipeline = parsed()
    named = next(p for p in pipeline.phases if p.name == phase)
    return {
        "id": f"ftjob-{number}",
        "status": status,
        "fine_tuned_model": f"ft:{BASE}:p::ftjob-{number}" if status == "succeeded" else None,
        "metadata": dict(phase_tags(pipeline, named)),
        "error": {"message": "The loss is nan.\nmore"} if status == "failed" else None,
    }


def test_files_are_sought_beside_the_pipeline_and_uploads_are_not() -> None:
    pipeline = parsed()
    sft, _, rl = pipeline.phases

    assert sft.body["training_file"] == "/data/chats.jsonl"
    assert rl.body["training_file"] == "file-0123"
    assert "name" not in sft.body
    assert [pipeline.base_model_of(p) for p in pipeline.phases] == [BASE] * 3


def test_a_phase_needs_those_that_its_model_and_its_graders_name() -> None:
    parts = {"liked": GRADER, "right": {"type": "string_check", "input": "$x", "reference": "$y"}}
    multi = {"type": "multi", "graders": parts, "calculate_output": "liked + right"}
    method = {"type": "reinforcement", "reinforcement": {"grader": multi}}

    assert [p.needs for p in parsed().phases] == [(), ("sft",), ("judge", "sft")]
    assert parsed(changed(2, method=method)).phases[2].needs == ("judge", "sft")


def test_models_take_the_places_of_names() -> None:
    rl = parsed().phases[2]

    body = rl.with_models(lambda name: MODELS[name])

    assert body["model"] == MODELS["sft"]
    assert body["method"]["reinforcement"]["grader"]["model"] == MODELS["judge"]
    assert rl.body["model"] == "$sft", "the phase itself is as it was written"


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ([], "it must have `name` and `phases`"),
        (DOCUMENT | {"then": 1}, "and no other member"),
        (DOCUMENT | {"name": "a b"}, "name is 'a b', but it must be 1 to 48"),
        (DOCUMENT | {"phases": []}, "at least one phase"),
        (DOCUMENT | {"phases": ["sft"]}, "phase 1 is not an object"),
        (DOCUMENT | {"phases": [SFT, SFT]}, "two phases have the name sft"),
        (changed(0, name="$sft"), "phase 1: name is '$sft'"),
        (changed(0, model=None), "phase sft: `model` is missing"),
        (changed(1, training_file=7), "phase judge: `training_file` is missing"),
        (changed(0, model="$judge"), "phase sft: $judge is not an earlier phase"),
        (changed(1, model="$judge"), "phase judge: $judge is not an earlier phase"),
        (changed(1, metadata={"phase": "x"}), "metadata `phase` is reserved"),
    ],
)
def test_a_file_that_makes_no_sense_is_told_where(document: object, expected: str) -> None:
    with pytest.raises(CliError) as caught:
        parsed(document)

    assert caught.value.message.startswith(f"{PATH}: ")
    assert expected in caught.value.message
    assert "docs/training.md#from-one-model-to-the-next" in caught.value.advice


def test_yaml_and_json_say_the_same(tmp_path: Path) -> None:
    yaml, plain = tmp_path / "p.yaml", tmp_path / "p.json"
    yaml.write_text(
        f"name: helpful\nphases:\n- {{name: sft, model: {BASE}, training_file: chats.jsonl}}\n"
    )
    plain.write_text(json.dumps(DOCUMENT | {"phases": [SFT]}))

    assert read_pipeline(yaml) == read_pipeline(plain)


@pytest.mark.parametrize(
    ("training", "expected", "advice"),
    [
        ("ema_decey: 1", "training.ema_decey is not a member", "Did you mean training.ema_decay?"),
        ("seed: 1, seed: 2", "'seed' is given twice", ""),
    ],
)
def test_a_phase_is_held_against_the_request_before_any_upload(
    tmp_path: Path, training: str, expected: str, advice: str
) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(
        "name: helpful\nphases:\n"
        f"- {{name: sft, model: {BASE}, training_file: chats.jsonl}}\n"
        f"- name: more\n  model: $sft\n  training_file: a.jsonl\n  training: {{{training}}}\n"
    )

    with pytest.raises(CliError) as caught:
        read_pipeline(path)

    assert f"{path}: " in caught.value.message
    assert "line 7" in caught.value.message
    assert expected in caught.value.message
    assert advice in caught.value.advice


@pytest.mark.parametrize(("name", "text"), [("p.json", "{"), ("p.yaml", "a: [")])
def test_a_file_that_cannot_be_read_is_told(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)

    with pytest.raises(CliError, match=r"it is not (JSON|YAML): "):
        read_pipeline(tmp_path / name)
    with pytest.raises(CliError, match="No such file"):
        read_pipeline(tmp_path / "none.yaml")


def test_the_first_phase_without_a_model_is_next() -> None:
    pipeline = parsed()
    sft, judge, rl = pipeline.phases

    assert next_step(pipeline, []) == SubmitPhase(phase=sft, models={}, earlier=0)
    assert next_step(pipeline, [job(1, "sft", "running")]) == FollowJob(phase=sft, job="ftjob-1")
    jobs = [job(1, "sft")]
    assert next_step(pipeline, jobs) == SubmitPhase(
        phase=judge, models={"sft": MODELS["sft"]}, earlier=0
    )
    two = [job(2, "judge"), *jobs]
    assert next_step(pipeline, two) == SubmitPhase(phase=rl, models=MODELS, earlier=0)
    three = [job(3, "rl"), *two]
    assert next_step(pipeline, three) == PipelineDone(
        models=MODELS | {"rl": f"ft:{BASE}:p::ftjob-3"}
    )


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_a_phase_that_came_to_nothing_stops_the_pipeline_until_it_is_retried(status: str) -> None:
    pipeline = parsed()
    jobs = [job(2, "judge", status), job(1, "sft")]

    with pytest.raises(CliError) as caught:
        next_step(pipeline, jobs)
    again = job_to_retry(pipeline, jobs)
    retried = next_step(pipeline, jobs, retried=again)

    assert f"Phase judge ended as {status}: job ftjob-2" in caught.value.message
    assert ("The loss is nan." in caught.value.message) is (status == "failed")
    assert "--retry" in caught.value.advice
    assert again == "ftjob-2"
    assert isinstance(retried, SubmitPhase)
    assert (retried.phase.name, retried.earlier) == ("judge", 1)
    assert next_step(pipeline, [job(3, "judge", "running"), *jobs]) == FollowJob(
        phase=pipeline.phases[1], job="ftjob-3"
    )


def test_nothing_is_retried_where_nothing_has_failed() -> None:
    pipeline = parsed()

    assert job_to_retry(pipeline, []) is None
    assert job_to_retry(pipeline, [job(1, "sft", "running")]) is None
    assert job_to_retry(pipeline, [job(3, "sft"), job(1, "sft", "failed")]) is None


def test_a_phase_that_was_changed_is_not_taken_for_what_was_made() -> None:
    changed_pipeline = parsed(changed(0, seed=8))

    with pytest.raises(CliError, match=r"Phase sft was changed .* as ftjob-1") as caught:
        next_step(changed_pipeline, [job(1, "sft")])

    assert "rename the pipeline helpful" in caught.value.advice


def test_a_phase_that_has_failed_may_be_changed() -> None:
    changed_pipeline, jobs = parsed(changed(0, seed=8)), [job(1, "sft", "failed")]

    step = next_step(changed_pipeline, jobs, retried=job_to_retry(changed_pipeline, jobs))

    assert isinstance(step, SubmitPhase)
    assert step.phase.body["seed"] == 8
