"""Plans of special jobs: memory saved, CPUs, past jobs, and what is suggested."""

import json
from dataclasses import replace
from typing import Literal

import pytest

from rendering.report import DataReport
from service.domain.errors import InvalidRequest
from service.domain.performance.calibration import MeasuredJob
from service.domain.planning.plan import Plan, make_plan
from service.domain.planning.plan_limits import PlanLimits
from service.domain.planning.plan_request import PlanRequest
from service.domain.planning.suggestions import Suggestion, suggestions
from service.domain.training.recipe import Training
from tests.unit.planning.test_plan import (
    LLAMA_70B,
    LORA,
    NC24,
    ND40,
    OFFLOADED,
    REQUEST,
    TINY,
    offer,
)
from trainer.contract import Lora

LAST = Training(train_last_n_layers=2, train_embeddings=False, loss_chunk=16)


def test_what_the_host_cannot_hold_is_no_plan_either() -> None:
    offloaded = replace(REQUEST, nodes=1, offers=(offer(NC24, "0.4"),), training=OFFLOADED)

    with pytest.raises(InvalidRequest, match="each host needs 164") as refused:
        make_plan(offloaded)

    assert "(40% kept free) of 132" in refused.value.message


def test_who_lacks_little_is_advised_to_offload_the_optimizer() -> None:
    request = replace(REQUEST, arch=LLAMA_70B, nodes=3, offers=(offer(ND40, "9"),))

    with pytest.raises(InvalidRequest, match="the optimizer offloaded"):
        make_plan(request)

    chosen = make_plan(replace(request, training=OFFLOADED)).chosen
    assert chosen.memory.optimizer == 0
    assert chosen.memory.host > 0


def test_what_a_plan_saves_is_read_again_and_the_usual_is_left_out() -> None:
    saving = make_plan(replace(REQUEST, training=LAST))
    adapters = make_plan(replace(REQUEST, training=Training(lora=LORA))).as_dict()["recipe"]

    assert Plan.from_dict(json.loads(json.dumps(saving.as_dict()))).recipe.options == LAST.options
    assert adapters["lora"] == {"rank": 16, "alpha": 32, "dropout": 0.05}


def test_the_local_stack_plans_on_cpu_with_its_own_processes() -> None:
    request = replace(
        REQUEST,
        arch=TINY,
        training=Training(precision="fp32"),
        accelerator="cpu",
        emulated=True,
        nodes=1,
        processes_per_node=2,
        examples=400,
    )

    plan = make_plan(request)
    chosen = plan.chosen

    assert (chosen.nodes, chosen.processes_per_node, chosen.zero_stage) == (1, 2, 0)
    assert chosen.seconds_per_step > 0
    assert sum("nothing is charged" in warning for warning in plan.warnings) == 1
    assert not any("nothing is charged" in warning for warning in make_plan(REQUEST).warnings)


def test_a_plan_on_cpus_warns_of_half_precision() -> None:
    assert warned("cpu", "fp16", "fp16")
    assert warned("cpu", "bf16", "speed of this computer's CPU in fp32")
    assert not warned("cpu", "bf16", "cannot compute in fp16")
    assert not warned("cpu", "fp32", "in fp32")
    assert not any(warned("cuda", precision, "CPU") for precision in ("fp16", "bf16"))


def warned(accelerator: Literal["cpu", "cuda"], precision: str, text: str) -> bool:
    training = Training(precision=precision)
    request = replace(REQUEST, arch=TINY, training=training, accelerator=accelerator)
    return any(text in warning for warning in make_plan(request).warnings)


def test_what_only_gpus_can_do_is_refused_before_machines_on_a_service_of_cpus() -> None:
    training = Training(zero_stage=3, zero_plus_plus=("hpz",))
    request = replace(REQUEST, arch=TINY, training=training, accelerator="cpu")

    with pytest.raises(InvalidRequest, match="needs GPUs") as refused:
        make_plan(request)

    assert refused.value.param == "training.zero_plus_plus"


def past(ratio: float, **change: str) -> MeasuredJob:
    """Return a job like REQUEST's that took ``ratio`` times as long as the roofline predicted."""
    job = MeasuredJob(
        model="llama",
        method="supervised",
        adapters="",
        vm_size="Standard_ND96amsr_A100_v4",
        predicted=4.0,
        measured=4.0 * ratio,
        steps=500,
    )
    return replace(job, **change)  # type: ignore[arg-type] # its texts only


def test_a_plan_learns_from_jobs_like_it_and_still_says_what_it_would_have_thought() -> None:
    first = make_plan(REQUEST).chosen
    second = make_plan(replace(REQUEST, model="llama", past=(past(1.4),) * 4)).chosen

    assert second.seconds_per_step == pytest.approx(1.4 * first.seconds_per_step, rel=0.03)
    assert second.roofline_seconds == first.roofline_seconds == first.seconds_per_step
    assert second.duration_p90 / second.duration_p50 < first.duration_p90 / first.duration_p50
    assert second.seconds_per_step_p10 < second.seconds_per_step < second.seconds_per_step_p90


def test_a_plan_that_waits_for_the_network_promises_no_time_until_a_job_like_it_was_measured() -> (
    None
):
    """Ethernet of 80 Gb/s between eight machines, and ZeRO-3 over it."""
    ethernet = replace(
        REQUEST,
        arch=LLAMA_70B,
        training=Training(lora=Lora(rank=16, alpha=32, dropout=0.0), zero_stage=3, micro_batch=1),
        offers=(offer("Standard_NC96ads_A100_v4"),),
        nodes=2,
        model="llama",
    )
    past_job = past(1.0, adapters="lora", vm_size="Standard_NC96ads_A100_v4")

    assert "waits for the network" in " ".join(make_plan(ethernet).warnings)
    assert make_plan(replace(ethernet, past=(past_job,))).warnings == ()
    assert make_plan(REQUEST).warnings == ()


SKEWED = DataReport(
    rows=200_000,
    examples=200_000,
    sequences=200_000,
    tokens=29_500_000,
    kept_tokens=29_500_000,
    trained_tokens=10_000_000,
    lengths=(50,) * 19 + (2000,),
    longest=2000,
    splits_answers=False,
)
MANY_SHORT = replace(
    REQUEST, data=SKEWED, examples=200_000, mean_tokens=148, training=Training(lora=LORA)
)


def suggested(request: PlanRequest) -> dict[str, Suggestion]:
    """Return the suggestions that make the job faster, by their change."""
    offered = suggestions(request, make_plan(request))
    return {suggestion.change: suggestion for suggestion in offered if suggestion.aim == "faster"}


def test_a_change_of_the_training_takes_what_a_plan_with_it_takes() -> None:
    packed = make_plan(replace(MANY_SHORT, training=Training(lora=LORA, packing=True))).chosen
    suggestion = suggested(MANY_SHORT)["training.packing true"]

    assert suggestion.duration_p50 == packed.duration_p50
    assert suggestion.duration_p50 < make_plan(MANY_SHORT).chosen.duration_p50


def test_adapters_are_suggested_where_all_weights_are_slower_and_nothing_too_dear() -> None:
    full = replace(REQUEST, arch=LLAMA_70B)
    adapters = replace(full, training=Training(lora=LORA))

    assert any("adapter" in change for change in suggested(full))
    assert not any("adapter" in change for change in suggested(adapters))

    tight = replace(full, limits=PlanLimits(budget=make_plan(full).chosen.cost_p90 * 2))
    assert any("checkpointing" in change for change in suggested(full)), "which costs 4 times"
    assert not any("checkpointing" in change for change in suggested(tight))


def test_a_shorter_sequence_says_how_many_it_cuts() -> None:
    few = replace(SKEWED, lengths=(500,) * 19 + (8000,), longest=8000, tokens=175_000_000)
    long = Training(lora=LORA, max_seq_len=8192)
    request = replace(MANY_SHORT, data=few, mean_tokens=875, training=long)

    assert "training.max_seq_len 512 (cuts 5% of the sequences)" in suggested(request)


def test_at_most_three_of_each_aim_are_shown_best_first() -> None:
    offered = suggestions(MANY_SHORT, make_plan(MANY_SHORT))
    for aim, member in (("cheaper", "cost_p50"), ("faster", "duration_p50")):
        gains = [
            float(getattr(suggestion, member)) for suggestion in offered if suggestion.aim == aim
        ]
        assert gains == sorted(gains)
        assert 1 <= len(gains) <= 3
