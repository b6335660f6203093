"""Options of the trainer, from the request to the run spec."""

import json
from dataclasses import replace
from typing import Any

import pytest

from service.api.jobs.job_requests import training_of
from service.domain.errors import InvalidRequest
from service.domain.planning.plan import Plan, make_plan
from service.domain.training.recipe import Hyperparameters, Training, resolve, zero_stages
from tests.unit.jobs.test_job_requests import parse
from tests.unit.planning.test_plan import REQUEST
from tests.unit.planning.test_recipe import ARCH
from trainer.contract import Lora, SpikeGuard

EVERYTHING = {
    "precision": "fp16",
    "on_spike": "stop",
    "compiled": True,
    "fused_kernels": True,
    "nccl": ["NCCL_ALGO=Ring", "NCCL_DEBUG=INFO"],
    "zero_stage": 3,
    "zero_plus_plus": ["hpz", "qgz"],
    "learning_rate": 1e-5,
    "learning_rate_scaling": {"rule": "square_root", "base_batch": 16},
}
BATCH = Hyperparameters(batch_size=64)


def options_of(**training: Any) -> Training:  # noqa: ANN401 - what JSON has
    """Return the training options of a request with this member ``training``."""
    body = {"model": "m", "training_file": "file-1", "training": training}
    return training_of(parse(json.dumps(body).encode()))


def test_what_is_asked_for_comes_to_the_trainer() -> None:
    recipe = resolve(BATCH, options_of(**EVERYTHING), examples=640, arch=ARCH)

    assert recipe.precision == "fp16"
    assert recipe.spike_guard == SpikeGuard(on_spike="stop")
    assert recipe.compiled
    assert recipe.nccl == ("NCCL_ALGO=Ring", "NCCL_DEBUG=INFO")
    assert recipe.fused_kernels
    assert recipe.zero_plus_plus == ("hpz", "qgz")


def test_plans_keep_what_was_asked_for_and_say_nothing_where_nothing_was() -> None:
    training = replace(options_of(**EVERYTHING), learning_rate=None, zero_stage=3)
    plan, plain = make_plan(replace(REQUEST, training=training)), make_plan(REQUEST)

    assert Plan.from_dict(json.loads(json.dumps(plan.as_dict()))).recipe == plan.recipe
    assert "compiled" not in plain.as_dict()["recipe"]


@pytest.mark.parametrize(("rule", "times"), [("linear", 4.0), ("square_root", 2.0)])
def test_a_learning_rate_grows_with_the_batch_from_the_one_it_was_found_with(
    rule: str, times: float
) -> None:
    scaled = options_of(learning_rate=1e-5, learning_rate_scaling={"rule": rule, "base_batch": 16})

    recipe = resolve(BATCH, scaled, examples=640, arch=ARCH)

    assert recipe.learning_rate == pytest.approx(times * 1e-5)


@pytest.mark.parametrize(
    ("training", "param"),
    [
        (Training(zero_plus_plus=("hpz",)), "training.zero_plus_plus"),
        (Training(rollout_offload=True), "training.rollout_offload"),
        (Training(precision="fp16", zero_stage=0), "training.zero_stage"),
        (Training(offload="parameters", zero_stage=2), "training.zero_stage"),
        (
            Training(offload="parameters", lora=Lora(rank=4, alpha=8, dropout=0.0, quantized=True)),
            "training.offload",
        ),
    ],
)
def test_what_cannot_be_is_named(training: Training, param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        resolve(BATCH, training, examples=640, arch=ARCH)

    assert refused.value.param == param


def test_stages_are_those_that_go_with_what_is_asked_for() -> None:
    aside = Training(precision="fp32", rollout_offload=True)

    assert list(zero_stages(Training(offload="parameters"))) == [3]
    assert list(zero_stages(aside)) == [1, 2]
    assert list(zero_stages(replace(aside, rollout_offload=False))) == [0, 1, 2, 3]


def test_layers_or_sequences_split_over_gpus_are_refused_with_what_to_do() -> None:
    for option in ("tensor_parallel", "sequence_parallel"):
        with pytest.raises(InvalidRequest, match=r"split over GPUs: .* training\.zero_stage 3"):
            options_of(**{option: 2})
