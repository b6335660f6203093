"""What POST /v1/fine_tuning/jobs takes, and how it says what is wrong."""

import json
from itertools import permutations
from typing import Any

import pytest
from pydantic import ValidationError

from contract.choices import CHECKPOINTS_KEPT
from contract.job import JobPatch, JobRequest
from contract.methods import METHODS
from contract.reinforcement import ReinforcementRequest
from contract.training import CurriculumRequest, MixRequest
from service.api.http import requests, validation
from service.api.jobs.job_requests import (
    hyperparameters_of,
    method_of,
    training_of,
    with_default_precision,
)
from service.domain.errors import InvalidRequest
from service.domain.training.recipe import Hyperparameters, Training
from tests.datasets import GRADER
from trainer import contract as trainers
from trainer.contract import Dpo, Lora, Reinforcement, TrainingOptions

LEAST = {"model": "m", "training_file": "file-1"}
LEAST_OPTIONS: dict[str, dict[str, Any]] = {"reinforcement": {"grader": {}}}


def parse(body: bytes) -> JobRequest:
    """Read a body as the route does."""
    try:
        return JobRequest.model_validate(requests.parse_json(body))
    except ValidationError as error:
        raise validation.member_error(JobRequest, error.errors()) from None


def request_with(**members: object) -> JobRequest:
    return parse(json.dumps(LEAST | members).encode())


def preferring(beta: object = None, **options: object) -> dict[str, Any]:
    hyper = {} if beta is None else {"hyperparameters": {"beta": beta}}
    return {"method": {"type": "dpo", "dpo": hyper | options}}


def refusal(**members: object) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        everything_of(members)
    return caught.value


def everything_of(members: dict[str, Any]) -> tuple[Hyperparameters, Training]:
    request = request_with(**members)
    return hyperparameters_of(request), training_of(request)


def test_the_least_request_leaves_everything_to_the_planner() -> None:
    request = request_with()

    assert hyperparameters_of(request) == Hyperparameters()
    assert training_of(request) == Training()
    assert training_of(request_with(training={"packing": True})) == Training(packing=True)
    assert request.infrastructure.nodes is None


@pytest.mark.parametrize(
    ("accelerator", "named", "used"),
    [
        ("cuda", {}, "bf16"),
        ("cuda", {"precision": "fp32"}, "fp32"),
        ("cpu", {}, "fp32"),
        ("cpu", {"precision": "bf16"}, "bf16"),
        ("cpu", {"precision": "fp16"}, "fp16"),
    ],
)
def test_jobs_on_cpus_train_in_fp32_unless_they_name_a_precision(
    accelerator: str, named: dict[str, str], used: str
) -> None:
    request = request_with(training={"packing": True, **named})

    training = with_default_precision(request, accelerator).training

    assert (training.precision, training.packing) == (used, True)
    assert request.training.precision == named.get("precision", "bf16"), "a copy is changed"


@pytest.mark.parametrize("limit", ["budget", "max_price"])
@pytest.mark.parametrize(
    ("amount", "is_taken"),
    [("0.000001", True), (1, True), ("99999999.999999", True)]
    + [(bad, False) for bad in (0, "0", "-1", "0.0000001", "100000000", "NaN", "Infinity", "")],
)
def test_an_amount_is_more_than_nothing_and_no_finer_than_is_stored(
    limit: str, amount: object, is_taken: bool
) -> None:
    infrastructure = {limit: {"amount": amount}}

    if is_taken:
        request_with(infrastructure=infrastructure)
    else:
        assert refusal(infrastructure=infrastructure).param == f"infrastructure.{limit}.amount"


def test_null_is_the_same_as_left_out() -> None:
    nothing = dict.fromkeys(("validation_file", "suffix", "seed", "metadata", "integrations"))

    assert request_with(**nothing, hyperparameters=None, method=None) == request_with()


def test_hyperparameters_are_taken_from_either_place() -> None:
    method = {"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": 3}}}
    values = {"n_epochs": 2, "batch_size": "auto", "learning_rate_multiplier": 2}

    assert hyperparameters_of(request_with(method=method)).n_epochs == 3
    assert hyperparameters_of(request_with(hyperparameters=values)) == Hyperparameters(
        n_epochs=2, learning_rate_multiplier=2.0
    )


def test_who_asks_for_dpo_gets_the_usual_beta_and_loss() -> None:
    for method in ({"type": "dpo"}, preferring()["method"], preferring(beta="auto")["method"]):
        request = request_with(method=method)

        assert method_of(request) == "dpo"
        assert training_of(request).dpo == Dpo(beta=0.1)
        assert hyperparameters_of(request) == Hyperparameters()


def test_every_option_of_dpo_is_taken() -> None:
    hyper = {"beta": 0.5, "n_epochs": 2, "batch_size": 8}
    options = {"hyperparameters": hyper, "label_smoothing": 0.1}
    request = request_with(method={"type": "dpo", "dpo": options})

    assert training_of(request).dpo == Dpo(beta=0.5, label_smoothing=0.1)
    assert hyperparameters_of(request) == Hyperparameters(n_epochs=2, batch_size=8)
    assert training_of(request_with(**preferring(loss="ipo"))).dpo == Dpo(beta=0.1, loss="ipo")
    flat = {"type": "dpo", "dpo": {"beta": 0.2, "hyperparameters": {"n_epochs": 2}}}
    assert training_of(request_with(method=flat)).dpo == Dpo(beta=0.2)


def test_a_reward_model_has_the_usual_hyperparameters_in_either_place() -> None:
    own = {"type": "reward", "reward": {"hyperparameters": {"n_epochs": 2, "batch_size": 8}}}

    training = training_of(request_with(method=own))
    bare = request_with(method={"type": "reward"}, hyperparameters={"n_epochs": 3})
    error = refusal(method={"type": "reward", "reward": {"hyperparameters": {"beta": 0.1}}})

    assert (training.method, training.dpo) == ("reward", None)
    assert hyperparameters_of(request_with(method=own)) == Hyperparameters(n_epochs=2, batch_size=8)
    assert hyperparameters_of(bare) == Hyperparameters(n_epochs=3)
    assert (error.code, error.param) == ("unknown_parameter", "method.reward.hyperparameters.beta")


@pytest.mark.parametrize(("method", "other"), list(permutations(METHODS, 2)))
def test_options_of_another_method_are_refused(method: str, other: str) -> None:
    error = refusal(method={"type": method, other: LEAST_OPTIONS.get(other, {})})

    assert error.param == f"method.{other}"
    assert repr(method) in error.message
    assert method_of(request_with(method={"type": method, other: None})) == method


def test_the_alpha_of_an_adapter_is_twice_its_rank_unless_told() -> None:
    lora = training_of(request_with(training={"adapter": {"type": "lora", "r": 8}})).lora

    assert lora is not None
    assert (lora.rank, lora.alpha) == (8, 16)
    quantized = training_of(request_with(training={"adapter": {"type": "qlora"}})).lora
    assert quantized == Lora(rank=16, alpha=32, dropout=0.0, quantized=True)


def test_what_saves_memory_is_off_unless_asked_for() -> None:
    options: dict[str, Any] = {
        "train_last_n_layers": 2,
        "train_embeddings": False,
        "loss_chunk": 512,
    }
    saving = training_of(request_with(training={**options, "offload": "optimizer"}))

    assert training_of(request_with()).options == TrainingOptions().options
    assert saving.options == TrainingOptions(**options, offload="optimizer").options


PYTHON_GRADER = {"type": "python", "source": "x"}


@pytest.mark.parametrize("text", ["a\0b", "\ud83d", "\ude42\ud83d"], ids=ascii)
@pytest.mark.parametrize(
    ("member", "where"),
    [
        (lambda text: {"model": text}, "model"),
        (lambda text: {"training_file": text}, "training_file"),
        (lambda text: {"validation_file": text}, "validation_file"),
        (lambda text: {"suffix": text}, "suffix"),
        (lambda text: {"metadata": {"a": text}}, "metadata.a"),
        (lambda text: {"metadata": {text: "a"}}, "metadata.{}"),
        (lambda text: {"integrations": [{"name": text}]}, "integrations.0.name"),
        (
            lambda text: {
                "method": {
                    "type": "reinforcement",
                    "reinforcement": {"grader": PYTHON_GRADER | {"source": text}},
                }
            },
            "method.reinforcement.grader.source",
        ),
    ],
)
def test_half_a_character_and_nul_are_refused_by_the_name_of_their_member(
    text: str,
    member: Any,  # noqa: ANN401 - any JSON
    where: str,
) -> None:
    fault = refusal(**member(text))

    assert fault.param == where.format(ascii(text)[1:-1])
    assert "half of a surrogate pair" in fault.message or "NUL" in fault.message
    assert fault.message.isascii()


def learning(**options: object) -> dict[str, Any]:
    return {"type": "reinforcement", "reinforcement": {"grader": GRADER} | options}


def resolved(**options: object) -> Reinforcement:
    settings = training_of(request_with(method=learning(**options))).reinforcement
    assert settings is not None
    return settings


def test_who_gives_a_grader_only_gets_the_usual_of_everything() -> None:
    settings = resolved()

    assert json.loads(settings.grader) == GRADER
    assert settings == Reinforcement(
        algorithm="grpo", grader=settings.grader, answers=8, max_answer_tokens=0
    )


@pytest.mark.parametrize(("algorithm", "beta"), [("grpo", 0.0), ("rloo", 0.05), ("ppo", 0.01)])
def test_each_algorithm_has_a_leash_of_its_own(algorithm: str, beta: float) -> None:
    assert resolved(algorithm=algorithm).beta == beta
    assert resolved(algorithm=algorithm, beta=0.0).beta == 0.0


def test_every_option_of_reinforcement_is_taken() -> None:
    options = {
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

    parsed = vars(resolved(**options))

    assert {name: parsed[name] for name in options} == options


def test_openais_hyperparameters_are_taken_where_its_clients_put_them() -> None:
    hyper = {"batch_size": 4, "n_epochs": 2, "learning_rate_multiplier": 2.0}
    also_taken = {
        "compute_multiplier": 0.5,
        "eval_interval": 7,
        "eval_samples": "auto",
        "reasoning_effort": "default",
    }
    request = request_with(method=learning(hyperparameters=hyper | also_taken))

    training = training_of(request)

    assert hyperparameters_of(request) == Hyperparameters(**hyper)  # type: ignore[arg-type] # of three types
    assert training.eval_steps == 7
    assert training.reinforcement is not None
    assert training.reinforcement.answers == 4
    own_form = request_with(method=learning(), training={"eval_steps": 5})
    assert training_of(own_form).eval_steps == 5


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
    description = member.get("description", "")

    assert description.endswith("."), f"{owner}.{name} has no docstring"
    assert "\n" not in description
    assert len(description) <= 100


def test_what_a_job_and_the_trainer_both_default_is_equal() -> None:
    requested = ReinforcementRequest(grader={})
    used = trainers.Reinforcement(algorithm="grpo", grader="{}", answers=8, max_answer_tokens=1)
    shared = ("temperature", "top_p", "clip", "steps_per_rollout", "replay_share")

    assert {n: getattr(requested, n) for n in shared} == {n: getattr(used, n) for n in shared}
    assert vars(MixRequest()) == vars(trainers.Mix())
    assert vars(CurriculumRequest(until_step=5)) == vars(trainers.Curriculum(until_step=5))
    assert CHECKPOINTS_KEPT == trainers.CHECKPOINTS_KEPT


def test_a_stored_request_reads_as_it_was_written() -> None:
    request = JobRequest(model="m", training_file="file-1")

    assert JobRequest.model_validate_json(request.model_dump_json()) == request
    assert set(request.model_dump()) >= set(JobPatch.model_fields)
