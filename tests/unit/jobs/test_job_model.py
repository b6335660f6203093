"""The models of a job describe themselves, and agree with the trainer where both name a default."""

from typing import Any

import pytest

from contract.choices import CHECKPOINTS_KEPT
from contract.job import JobPatch, JobRequest
from contract.reinforcement import ReinforcementRequest
from contract.training import CurriculumRequest, MixRequest
from trainer import contract as trainers

SCHEMA = JobRequest.model_json_schema()
MEMBERS = [
    (owner, name, member)
    for owner, model in (("JobRequest", SCHEMA), *SCHEMA["$defs"].items())
    for name, member in model.get("properties", {}).items()
]


@pytest.mark.parametrize(("owner", "name", "member"), MEMBERS, ids=lambda part: str(part)[:30])
def test_each_option_is_described_in_one_noun_phrase(
    owner: str, name: str, member: dict[str, Any]
) -> None:
    said = member.get("description", "")

    assert said.endswith("."), f"{owner}.{name} has no docstring"
    assert "\n" not in said
    assert len(said) <= 100


def test_what_a_job_and_the_trainer_both_default_is_equal() -> None:
    asked = ReinforcementRequest(grader={})
    used = trainers.Reinforcement(algorithm="grpo", grader="{}", answers=8, max_answer_tokens=1)
    shared = ("temperature", "top_p", "clip", "steps_per_rollout", "replay_share")

    assert {n: getattr(asked, n) for n in shared} == {n: getattr(used, n) for n in shared}
    assert vars(MixRequest()) == vars(trainers.Mix())
    assert vars(CurriculumRequest(until_step=5)) == vars(trainers.Curriculum(until_step=5))
    assert CHECKPOINTS_KEPT == trainers.CHECKPOINTS_KEPT


def test_a_stored_request_reads_as_it_was_written() -> None:
    asked = JobRequest(model="m", training_file="file-1")

    assert JobRequest.model_validate_json(asked.model_dump_json()) == asked
    assert set(asked.model_dump()) >= set(JobPatch.model_fields)
