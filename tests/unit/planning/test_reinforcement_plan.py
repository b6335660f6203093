"""Reinforcement before machines are hired: its options, and what answers cost in room and time."""

import json
from dataclasses import replace
from typing import Any

import pytest

from contract.choices import Format
from service.domain.errors import InvalidRequest
from service.domain.models.architecture import Architecture
from service.domain.performance.memory import MemoryEstimate, MicroStep, estimate
from service.domain.performance.rollout_time import Rollout, cpu_seconds, gpu_seconds
from service.domain.performance.throughput import CPU_STEP, cpu_step, gpu_step
from service.domain.planning.plan import Plan, make_plan
from service.domain.training.recipe import Recipe, Training, resolve
from service.domain.training.reinforcement import missing_member
from tests.datasets import GRADER
from tests.unit.performance.test_memory import LORA_64, QWEN_2B, QWEN_7B, QWEN_14B, QWEN_72B
from tests.unit.performance.test_throughput import ND, WORK, with_options
from tests.unit.planning.test_plan import LLAMA_70B, REQUEST
from tests.unit.planning.test_recipe import ARCH
from trainer.contract import Lora, Reinforcement, TrainingOptions

GRPO = Reinforcement(algorithm="grpo", grader=json.dumps(GRADER), answers=8, max_answer_tokens=256)
PPO = replace(GRPO, algorithm="ppo")


def training(settings: Reinforcement = GRPO, **more: Any) -> Training:  # noqa: ANN401 - of any type
    return Training(method="reinforcement", reinforcement=settings, **more)


def recipe(settings: Reinforcement = GRPO, **more: Any) -> Recipe:  # noqa: ANN401 - of any type
    return resolve(REQUEST.hyperparameters, training(settings, **more), examples=1000, arch=ARCH)


def test_answers_are_learnt_as_carefully_as_preferences() -> None:
    made = recipe()

    assert (made.format, made.learning_rate) == (Format.PROMPT, 1e-6)
    assert recipe(lora=LORA_64).learning_rate == 1e-5
    assert made.sequences == 8


@pytest.mark.parametrize(("length", "longest"), [(None, 512), (4096, 512), (600, 300), (64, 32)])
def test_answers_take_at_most_half_of_the_context(length: int | None, longest: int) -> None:
    made = recipe(replace(GRPO, max_answer_tokens=0), max_seq_len=length)

    assert made.reinforcement is not None
    assert made.reinforcement.max_answer_tokens == longest
    assert made.context == made.max_seq_len - longest


@pytest.mark.parametrize(
    ("change", "param", "says"),
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
    change: dict[str, Any], param: str, says: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        recipe(replace(GRPO, **change))

    assert refused.value.param == f"method.reinforcement.{param}"
    assert says in refused.value.message


def test_one_answer_is_enough_where_a_critic_judges_it() -> None:
    assert recipe(replace(PPO, answers=1)).sequences == 1


def test_answers_that_are_not_there_yet_are_not_packed() -> None:
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


def test_a_prompt_is_as_many_sequences_as_it_has_answers() -> None:
    few, many = needs(replace(GRPO, answers=2)), needs(GRPO)

    assert many.activations == 4 * few.activations
    assert many.states == few.states
    assert many.cache == few.cache == 2 * 32 * 4096 * 2 * 64 * 2048, (
        "as many as are written at once"
    )


def test_old_answers_are_trained_on_beside_the_new_ones() -> None:
    fresh, old = needs(GRPO), needs(replace(GRPO, replay_share=0.5))

    assert old.activations == 2 * fresh.activations
    assert old.cache == fresh.cache


def test_only_a_leash_needs_the_base_model_beside() -> None:
    free, leashed = needs(GRPO), needs(replace(GRPO, beta=0.05))

    assert leashed.parameters == 2 * free.parameters
    assert needs(replace(GRPO, beta=0.05), LORA_64).states == needs(GRPO, LORA_64).states


@pytest.mark.parametrize("lora", [None, LORA_64])
def test_a_critic_is_everything_that_is_trained_once_more(lora: Lora | None) -> None:
    alone, both = needs(GRPO, lora), needs(PPO, lora)

    assert both.activations == 2 * alone.activations
    assert both.logits == alone.logits
    for part in ("parameters", "gradients", "optimizer", "update"):
        assert getattr(both, part) == pytest.approx(2 * getattr(alone, part), abs=2)


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


def test_sequences_side_by_side_are_written_in_nearly_the_time_of_one() -> None:
    one = Rollout(
        arch=QWEN_7B, width=2, batches=1, sequences=1, prompt_tokens=64, answer_tokens=256
    )
    many = replace(one, sequences=8)

    gpu = [gpu_seconds(r, bandwidth=2039e9, flops=1e14, gathering=0.0) for r in (one, many)]
    cpu = [cpu_seconds(r, flops=1e10) for r in (one, many)]

    assert gpu[1] < 1.2 * gpu[0]
    assert cpu[1] == pytest.approx(8 * cpu[0])


def test_a_step_waits_for_its_answers() -> None:
    """Half of what is allowed is expected, and all 64 of a process are written side by side."""
    grouped = replace(WORK, method="reinforcement", sequences=8, tokens_per_sequence=512)
    work = with_options(grouped, reinforcement=GRPO)
    longer = replace(GRPO, max_answer_tokens=512)

    plain = gpu_step(with_options(work, reinforcement=None), ND, nodes=1, processes_per_node=8)
    graded = gpu_step(work, ND, nodes=1, processes_per_node=8)
    long = gpu_step(with_options(work, reinforcement=longer), ND, nodes=1, processes_per_node=8)
    sharded = gpu_step(replace(work, zero_stage=3), ND, nodes=1, processes_per_node=8)

    assert graded.seconds > plain.seconds + 128 * 0.0246
    assert long.seconds > graded.seconds + 0.7 * 128 * 0.0246, "but for shorter prompts"
    assert sharded.seconds > graded.seconds, "each token gathers every weight"
    assert graded.high / graded.seconds > plain.high / plain.seconds


def test_prompts_of_several_micro_batches_are_answered_at_once() -> None:
    """Sixty-four answers side by side, so four micro-batches of sixteen, or two steps of two."""
    work = replace(WORK, method="reinforcement", sequences=8, micro_batch=2, accumulation=4)
    once = with_options(work, reinforcement=GRPO).rollout
    asked = replace(GRPO, steps_per_rollout=2)
    twice = with_options(replace(work, accumulation=2), reinforcement=asked).rollout
    many = with_options(replace(work, accumulation=6), reinforcement=GRPO).rollout

    assert once is not None
    assert twice is not None
    assert many is not None
    assert (once.sequences, once.batches) == (64, 1)
    assert (twice.sequences, twice.batches) == (64, 0.5)
    assert (many.sequences, many.batches) == (64, 2)


@pytest.mark.parametrize(
    ("change", "more"),
    [
        ({}, 0),
        ({"steps_per_rollout": 2}, 1),
        ({"beta": 0.1}, 2),  # the reference's, and the policy's own to hold against it
    ],
)
def test_each_look_at_an_answer_is_a_forward_pass(change: dict[str, Any], more: int) -> None:
    work = with_options(replace(WORK, method="reinforcement", sequences=8), reinforcement=GRPO)
    asked = with_options(work, reinforcement=replace(GRPO, **change))

    plain, found = (
        cpu_step(w, flops=1e9).seconds - cpu_seconds(w.rollout, flops=1e9) - CPU_STEP
        for w in (work, asked)
        if w.rollout is not None
    )

    assert found / plain == pytest.approx((8 + 2 * more) / 8)


def test_a_critic_takes_as_long_again() -> None:
    work = with_options(replace(WORK, method="reinforcement", sequences=8), reinforcement=GRPO)

    alone, both = (
        cpu_step(with_options(work, reinforcement=settings), flops=1e12).seconds
        for settings in (GRPO, PPO)
    )

    assert 2 < both / alone < 2.5, "its values are wanted before, too"


def test_a_plan_says_that_its_time_was_not_measured() -> None:
    plan = make_plan(replace(REQUEST, training=training(max_seq_len=2048)))

    assert any("step time is estimated" in warning for warning in plan.warnings)
    assert Plan.from_dict(json.loads(json.dumps(plan.as_dict()))) == plan


def test_prompts_that_leave_no_room_for_an_answer_are_pointed_out() -> None:
    request = replace(REQUEST, training=training(max_seq_len=512), mean_tokens=300)

    said = " ".join(make_plan(request).warnings)

    assert "A mean prompt has about 300 tokens, and with more than 256 its answer" in said


def test_what_does_not_fit_is_advised_whatever_its_answers_are() -> None:
    long = replace(GRPO, max_answer_tokens=1500)
    request = replace(REQUEST, arch=LLAMA_70B, training=training(long, max_seq_len=2048), nodes=1)

    with pytest.raises(InvalidRequest) as refused:
        make_plan(request)

    assert refused.value.code == "plan_does_not_fit"


def test_a_reward_model_reads_every_new_answer_once() -> None:
    settings = replace(PPO, algorithm="grpo", beta=0.0)
    plain = with_options(replace(WORK, method="reinforcement"), reinforcement=settings)
    asked, replayed = replace(plain, judge=10**9), replace(settings, replay_share=0.5)

    alone, judged = (cpu_step(work, flops=1e12).seconds for work in (plain, asked))
    without, half = (
        cpu_step(with_options(work, reinforcement=replayed), flops=1e12).seconds
        for work in (plain, asked)
    )

    tokens = WORK.accumulation * plain.micro_tokens
    assert judged - alone == pytest.approx(2e9 * tokens / 1e12)
    assert half - without == pytest.approx(judged - alone), "answers of before were graded then"
