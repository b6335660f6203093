"""The models of a job describe themselves, and agree with the trainer where both name a default."""

import json
from typing import Any

import pytest

from contract.choices import CHECKPOINTS_KEPT
from contract.job import JobPatch, JobRequest
from contract.reinforcement import ReinforcementRequest
from contract.training import CurriculumRequest, MixRequest
from service.domain.errors import InvalidRequest
from tests.unit.test_job_requests import parse
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


def _dpo(**options: object) -> dict[str, Any]:
    return {"method": {"type": "dpo", "dpo": options}}


def _training(**options: object) -> dict[str, Any]:
    return {"training": options}


def _learning(**options: object) -> dict[str, Any]:
    return {"method": {"type": "reinforcement", "reinforcement": {"grader": {}, **options}}}


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"hyperparameters": {"batch_size": 0}}, "hyperparameters.batch_size"),
        ({"hyperparameters": {"n_epochs": 51}}, "hyperparameters.n_epochs"),
        (
            {"hyperparameters": {"learning_rate_multiplier": 0.0}},
            "hyperparameters.learning_rate_multiplier",
        ),
        (_dpo(hyperparameters={"beta": 3.0}), "method.dpo.hyperparameters.beta"),
        (_dpo(loss="hinge"), "method.dpo.loss"),
        (_dpo(label_smoothing=0.5), "method.dpo.label_smoothing"),
        *(
            (_training(**{name: value}), f"training.{name}")
            for name, value in {
                "micro_batch": 0,
                "learning_rate": 1.0,
                "checkpoint_seconds": 0.5,
                "eval_steps": -1,
                "ema_decay": 1.0,
                "keep_checkpoints": 21,
                "milestone_every_steps": -1,
                "precision": "int8",
                "train_last_n_layers": 0,
            }.items()
        ),
        (_training(zero_plus_plus=["abc"]), "training.zero_plus_plus.0"),
        *(
            (_training(nccl=[pair]), "training.nccl")
            for pair in (
                *("LD_PRELOAD=/tmp/x.so", "NCCL_NET_PLUGIN=/tmp/x.so", "NCCL_SOCKET_IFNAME=lo"),
                *("NCCL_DEBUG_FILE=/tmp/x", "NCCL_ALGO", "NCCL_ALGO=", "NCCL_ALGO=a b", "=Ring"),
            )
        ),
        (_training(adapter={"type": "lora", "r": 0}), "training.adapter.r"),
        (_training(adapter={"type": "lora", "dropout": 1.0}), "training.adapter.dropout"),
        (_training(mix={"threshold_tokens": 0}), "training.mix.threshold_tokens"),
        (_training(mix={"threshold_tokens": 1 << 21}), "training.mix.threshold_tokens"),
        (_training(mix={"short_share": 1.0}), "training.mix.short_share"),
        (_training(curriculum={"until_step": 0}), "training.curriculum.until_step"),
        *(
            (_learning(**{name: value}), f"method.reinforcement.{name}")
            for name, value in {
                "algorithm": "trpo",
                "answers": 0,
                "temperature": 0.0,
                "top_p": 1.1,
                "clip": 1.0,
                "steps_per_rollout": 17,
                "gae_lambda": 1.1,
                "replay_share": 0.6,
                "replay_max_age": 0,
                "beta": 3.0,
                "beta_end": 3.0,
                "kl_target": -1.0,
            }.items()
        ),
    ],
)
def test_a_value_out_of_bounds_is_named(asked: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse(json.dumps({"model": "m", "training_file": "file-1"} | asked).encode())

    assert refused.value.param == param
