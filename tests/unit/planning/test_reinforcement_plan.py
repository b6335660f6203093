"""Reinforcement before machines are hired: its options, and what answers cost in room and time."""

import json
from dataclasses import replace
from typing import Any

import pytest

from service.domain.errors import InvalidRequest
from service.domain.models.architecture import Architecture
from service.domain.performance.memory import MemoryEstimate, MicroStep, estimate
from service.domain.performance.rollout_time import Rollout, cpu_seconds, gpu_seconds
from service.domain.performance.throughput import CPU_STEP, cpu_step
from service.domain.planning.plan import Plan, make_plan
from service.domain.training.recipe import Recipe, Training, resolve
from service.domain.training.reinforcement import missing_member
from tests.datasets import GRADER
from tests.unit.performance.test_memory import LORA_64, QWEN_2B, QWEN_7B, QWEN_14B, QWEN_72B
from tests.unit.performance.test_throughput import WORK, with_options
from tests.unit.planning.test_plan import LLAMA_70B, REQUEST
from tests.unit.planning.test_recipe import ARCH
from trainer.contract import Lora, Reinforcement, TrainingOptions

GRPO = Reinforcement(algorithm="grpo", grader=json.dumps(GRADER), answers=8, max_answer_tokens=256)
PPO = replace(GRPO, algorithm="ppo")


def training(settings: Reinforcement = GRPO, **members: Any) -> Training:  # noqa: ANN401 - of any type
    return Training(method="reinforcement", reinforcement=settings, **members)


def recipe(settings: Reinforcement = GRPO, **members: Any) -> Recipe:  # noqa: ANN401 - of any type
    return resolve(REQUEST.hyperparameters, training(settings, **members), examples=1000, arch=ARCH)


@pytest.mark.parametrize(("length", "longest"), [(None, 512), (4096, 512), (600, 300), (64, 32)])
def test_answers_take_at_most_half_of_the_context(length: int | None, longest: int) -> None:
    resolved = recipe(replace(GRPO, max_answer_tokens=0), max_seq_len=length)

    assert resolved.reinforcement is not None
    assert resolved.reinforcement.max_answer_tokens == longest
    assert resolved.context == resolved.max_seq_len - longest


@pytest.mark.parametrize(
    ("change", "param", "expected"),
    [
        ({"answers": 1}, "answers", "2 to 64, as grpo compares"),
        ({"answers": 1, "algorithm": "rloo"}, "answers", "as rloo compares"),
        ({"max_answer_tokens": 2048}, "max_answer_tokens", "max_seq_len is 2048"),
        ({"beta_end": 0.1}, "beta_end", "beta above 0"),
        ({"kl_target": 5.0}, "kl_target", "beta above 0"),
        ({"beta": 0.1, "beta_end": 0.01, "kl_target": 5.0}, "beta_end", "beside kl_target"),
    ],
)
def test_an_option_that_can_never_work_is_named(
    change: dict[str, Any], param: str, expected: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        recipe(replace(GRPO, **change))

    assert refused.value.param == f"method.reinforcement.{param}"
    assert expected in refused.value.message


def test_answers_that_are_not_there_yet_are_not_packed_and_a_critic_judges_one_alone() -> None:
    assert recipe(replace(PPO, answers=1)).sequences == 1

    with pytest.raises(InvalidRequest, match="method reinforcement") as refused:
        recipe(packing=True)
    assert refused.value.param == "training.packing"


def test_what_the_grader_reads_must_be_in_every_row() -> None:
    assert missing_member(GRPO, {"answer": 0, "level": 3}) is None
    assert missing_member(GRPO, {"answer": 17}) == (
        "line 17 has no member `answer`, which the grader reads"
    )
    assert (
        missing_member(GRPO, {}) == "its first row has no member `answer`, which the grader reads"
    )


def needs(settings: Reinforcement, lora: Lora | None = None) -> MemoryEstimate:
    micro_step = MicroStep(
        samples=1,
        seq_len=2048,
        method="reinforcement",
        sequences=settings.answers,
        reinforcement=settings,
    )
    return estimate(
        QWEN_7B,
        micro_step,
        zero_stage=2,
        world=8,
        options=TrainingOptions(lora=lora),
    )


def test_old_answers_and_a_leash_need_room_beside_the_new_ones() -> None:
    fresh, with_replay = needs(GRPO), needs(replace(GRPO, replay_share=0.5))

    assert with_replay.activations == 2 * fresh.activations
    assert with_replay.cache == fresh.cache == 2 * 32 * 4096 * 2 * 64 * 2048, "64 side by side"
    assert fresh.total == fresh.states + fresh.cache + fresh.buffers + fresh.runtime

    free, leashed = needs(GRPO), needs(replace(GRPO, beta=0.05))
    assert leashed.parameters == 2 * free.parameters
    assert needs(replace(GRPO, beta=0.05), LORA_64).states == needs(GRPO, LORA_64).states


# Tokens a second of Hugging Face's generate, one sequence of 2,048 tokens: QwenLM/Qwen's README.
@pytest.mark.parametrize(
    ("arch", "measured"),
    [(QWEN_2B, 54.09), (QWEN_7B, 40.93), (QWEN_14B, 32.22), (QWEN_72B, 8.48)],
)
def test_published_speeds_of_writing_are_met(arch: Architecture, measured: float) -> None:
    """The largest ran on two GPUs, one after the other: as fast as on one that holds it."""
    rollout = Rollout(
        arch=arch, width=2, batches=1, sequences=1, prompt_tokens=1, answer_tokens=2048
    )

    seconds = gpu_seconds(rollout, bandwidth=2039e9, flops=1e14, gathering=0.0)

    assert 2048 / seconds == pytest.approx(measured, rel=0.12)


@pytest.mark.parametrize(
    ("change", "passes"),
    [
        ({}, 0),
        ({"steps_per_rollout": 2}, 1),
        ({"beta": 0.1}, 2),  # the reference's, and the policy's own to hold against it
    ],
)
def test_each_look_at_an_answer_is_a_forward_pass(change: dict[str, Any], passes: int) -> None:
    work = with_options(replace(WORK, method="reinforcement", sequences=8), reinforcement=GRPO)
    changed = with_options(work, reinforcement=replace(GRPO, **change))

    plain, costly = (
        cpu_step(w, flops=1e9).seconds - cpu_seconds(w.rollout, flops=1e9) - CPU_STEP
        for w in (work, changed)
        if w.rollout is not None
    )

    assert costly / plain == pytest.approx((8 + 2 * passes) / 8)


def test_a_plan_says_that_its_time_was_not_measured() -> None:
    plan = make_plan(replace(REQUEST, training=training(max_seq_len=2048)))

    assert any("step time is estimated" in warning for warning in plan.warnings)
    assert Plan.from_dict(json.loads(json.dumps(plan.as_dict()))) == plan


def test_prompts_that_leave_no_room_for_an_answer_are_pointed_out() -> None:
    request = replace(REQUEST, training=training(max_seq_len=512), mean_tokens=300)

    warnings = " ".join(make_plan(request).warnings)

    assert "A mean prompt has about 300 tokens, and with more than 256 its answer" in warnings


def test_what_does_not_fit_is_advised_whatever_its_answers_are() -> None:
    long = replace(GRPO, max_answer_tokens=1500)
    request = replace(REQUEST, arch=LLAMA_70B, training=training(long, max_seq_len=2048), nodes=1)

    with pytest.raises(InvalidRequest) as refused:
        make_plan(request)

    assert refused.value.code == "plan_does_not_fit"
