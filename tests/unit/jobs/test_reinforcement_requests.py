"""What `method.reinforcement` takes: OpenAI's members and ours, and how it says what is wrong."""

import json
from typing import Any

import pytest

from service.api.jobs.job_requests import hyperparameters_of, training_of
from service.domain.training.recipe import Hyperparameters
from tests.datasets import GRADER
from tests.unit.jobs.test_job_requests import request_with
from trainer.contract import Reinforcement


def learning(**options: object) -> dict[str, Any]:
    return {"type": "reinforcement", "reinforcement": {"grader": GRADER} | options}


def resolved(**options: object) -> Reinforcement:
    found = training_of(request_with(method=learning(**options))).reinforcement
    assert found is not None
    return found


def test_who_gives_a_grader_only_gets_the_usual_of_everything() -> None:
    found = resolved()

    assert json.loads(found.grader) == GRADER
    assert found == Reinforcement(
        algorithm="grpo", grader=found.grader, answers=8, max_answer_tokens=0
    )


@pytest.mark.parametrize(("algorithm", "beta"), [("grpo", 0.0), ("rloo", 0.05), ("ppo", 0.01)])
def test_each_algorithm_has_a_leash_of_its_own(algorithm: str, beta: float) -> None:
    assert resolved(algorithm=algorithm).beta == beta
    assert resolved(algorithm=algorithm, beta=0.0).beta == 0.0


def test_every_option_is_taken() -> None:
    ours = {
        "algorithm": "ppo",
        "answers": 2,
        "max_answer_tokens": 64,
        "temperature": 0.7,
        "top_p": 0.9,
        "beta": 0.1,
        "beta_end": 0.01,
        "clip": 0.3,
        "steps_per_rollout": 4,
        "gae_lambda": 0.9,
        "replay_share": 0.25,
        "replay_max_age": 10,
    }

    found = vars(resolved(**ours))

    assert {name: found[name] for name in ours} == ours


def test_openais_hyperparameters_are_taken_where_its_clients_put_them() -> None:
    hyper = {"batch_size": 4, "n_epochs": 2, "learning_rate_multiplier": 2.0}
    more = {
        "compute_multiplier": 0.5,
        "eval_interval": 7,
        "eval_samples": "auto",
        "reasoning_effort": "default",
    }
    request = request_with(method=learning(hyperparameters=hyper | more))

    training = training_of(request)

    assert hyperparameters_of(request) == Hyperparameters(**hyper)  # type: ignore[arg-type] # of three types
    assert training.eval_steps == 7
    assert training.reinforcement is not None
    assert training.reinforcement.answers == 4
    ours = request_with(method=learning(), training={"eval_steps": 5})
    assert training_of(ours).eval_steps == 5
