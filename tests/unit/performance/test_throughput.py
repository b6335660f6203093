"""Step times: published speeds within the stated interval, and physics the right way round."""

from dataclasses import replace
from typing import Any

import pytest

from service.domain.models.architecture import Architecture
from service.domain.performance.efficiency import HUGGING_FACE, LLM_FOUNDRY
from service.domain.performance.throughput import StepWork, cpu_step, gpu_step
from service.domain.performance.vm_catalogue import SKUS, Sku, lookup
from trainer.contract import Lora, TrainingOptions


def sku(name: str) -> Sku:
    size = lookup(name)
    assert size is not None
    return size


ND = sku("Standard_ND96amsr_A100_v4")
NC = sku("Standard_NC96ads_A100_v4")
QWEN_7B = Architecture.from_config(
    {
        "model_type": "qwen2",
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "intermediate_size": 11008,
        "vocab_size": 151936,
    }
)
WORK = StepWork(
    arch=QWEN_7B,
    zero_stage=2,
    micro_batch=4,
    accumulation=2,
    tokens_per_sequence=2048,
    options=TrainingOptions(),
)


def with_options(work: StepWork, **options: Any) -> StepWork:  # noqa: ANN401 - of TrainingOptions
    return replace(work, options=replace(work.options, **options))


def adapters_of(rank: int | None) -> Lora | None:
    return Lora(rank=rank, alpha=rank, dropout=0.0) if rank else None


# Seconds of a step of 8 rows on one A100-80GB, from QwenLM/Qwen's README (LoRA of rank 64).
@pytest.mark.parametrize(
    ("tokens", "measured"), [(512, 1.5), (1024, 2.8), (2048, 5.2), (4096, 10.1), (8192, 21.3)]
)
def test_published_steps_lie_within_the_interval(tokens: int, measured: float) -> None:
    row = replace(WORK, micro_batch=1, accumulation=8, tokens_per_sequence=tokens)
    one_row = with_options(row, lora=adapters_of(64))

    step = gpu_step(one_row, ND, nodes=1, processes_per_node=1)

    assert step.low <= measured <= step.high
    assert step.seconds == pytest.approx(measured, rel=0.25)


@pytest.mark.parametrize(("tokens", "measured"), [(1024, 3.5), (2048, 7.0), (4096, 11.6)])
def test_published_steps_over_a_base_in_four_bits_lie_within_the_interval(
    tokens: int, measured: float
) -> None:
    row = replace(WORK, micro_batch=1, accumulation=8, tokens_per_sequence=tokens)
    one_row = with_options(row, lora=adapters_of(64))
    quantized = with_options(row, lora=Lora(rank=64, alpha=64, dropout=0.0, quantized=True))

    step = gpu_step(quantized, ND, nodes=1, processes_per_node=1)

    assert step.low <= measured <= step.high
    assert step.seconds > gpu_step(one_row, ND, nodes=1, processes_per_node=1).seconds


def test_a_promise_is_as_vague_as_the_share_of_the_network_in_it() -> None:
    adapters = with_options(WORK, lora=adapters_of(16))
    alone, several = (gpu_step(adapters, ND, nodes=n, processes_per_node=8) for n in (1, 2))
    sharded = gpu_step(replace(WORK, zero_stage=3), ND, nodes=2, processes_per_node=8)

    assert several.high / several.seconds == pytest.approx(alone.high / alone.seconds, rel=0.02)
    assert sharded.high / sharded.seconds > several.high / several.seconds


def test_more_machines_never_reach_more_of_the_network() -> None:
    shares = [HUGGING_FACE.share_of_fabric(nodes) for nodes in range(1, 200)]

    assert shares == sorted(shares, reverse=True)
    assert shares[1] == HUGGING_FACE.fabric_few
    assert shares[-1] == pytest.approx(HUGGING_FACE.fabric)
    assert LLM_FOUNDRY.share_of_fabric(2) == LLM_FOUNDRY.share_of_fabric(64)


def test_short_rows_wait_for_kernel_launches() -> None:
    short, shorter = (
        gpu_step(
            replace(WORK, micro_batch=1, tokens_per_sequence=n), ND, nodes=1, processes_per_node=1
        )
        for n in (64, 32)
    )

    assert short.seconds == pytest.approx(shorter.seconds, rel=1e-3)


@pytest.mark.parametrize(
    ("lora_rank", "checkpointing", "before", "after"),
    [(None, False, 6, 8), (None, True, 8, 10), (1, False, 4, 6), (1, True, 6, 8)],
)
def test_a_pair_costs_two_sequences_and_a_forward_pass_of_the_reference(
    lora_rank: int | None, checkpointing: bool, before: int, after: int
) -> None:
    work = with_options(WORK, lora=adapters_of(lora_rank), gradient_checkpointing=checkpointing)

    single, pair = (
        cpu_step(replace(work, method=m), flops=1e9).seconds for m in ("supervised", "dpo")
    )

    # Attention and adapters make the difference.
    assert pair / single == pytest.approx(2 * after / before, rel=0.02)


def test_zero_3_gathers_the_weights_for_the_reference_as_well() -> None:
    sharded = replace(WORK, zero_stage=3)

    single, pair = (
        gpu_step(replace(sharded, method=m), NC, nodes=2, processes_per_node=4).network
        for m in ("supervised", "dpo")
    )

    assert pair == pytest.approx(single * 4 / 3)


def test_vm_sizes_are_found_as_azure_finds_them() -> None:
    assert lookup("standard_nd96AMSR_a100_V4") is ND
    assert lookup("Standard_D2s_v5") is None
    assert ND.infiniband
    assert not NC.infiniband
    assert len({s.vm_size for s in SKUS}) == len(SKUS)


# Tokens per second and GPU of llm-foundry's benchmarks: MPT of 7 and 13 billion parameters.
MPT_7B = Architecture(
    parameters=6_658_859_008,
    hidden_size=4096,
    layers=32,
    vocab_size=50368,
    heads=32,
    kv_heads=32,
    head_dim=128,
    intermediate_size=10922,
    max_positions=65536,
    tied=True,
)


@pytest.mark.parametrize(
    ("vm_size", "micro_batch", "checkpointing", "measured"),
    [
        ("Standard_ND96amsr_A100_v4", 6, False, 4641),
        ("Standard_ND96asr_v4", 12, True, 3679),
        ("Standard_ND96isr_H100_v5", 6, False, 10643),
    ],
)
def test_published_speeds_of_another_program_are_met_with_its_coefficients(
    vm_size: str, micro_batch: int, checkpointing: bool, measured: float
) -> None:
    alike = replace(WORK, arch=MPT_7B, zero_stage=3, micro_batch=micro_batch, accumulation=1)
    pretraining = with_options(alike, gradient_checkpointing=checkpointing)

    step = gpu_step(pretraining, sku(vm_size), nodes=1, processes_per_node=8, stack=LLM_FOUNDRY)

    assert micro_batch * 2048 / step.seconds == pytest.approx(measured, rel=0.1)


def test_nothing_is_promised_on_gpus_that_nobody_measured() -> None:
    newer = replace(ND, gpu="B200-SXM-192GB")

    step, measured = (gpu_step(WORK, s, nodes=1, processes_per_node=8) for s in (newer, ND))

    assert "uncertain: no training was measured" in step.doubt
    assert step.high / step.low > 3 * measured.high / measured.low
    assert measured.doubt == ""


def test_nothing_is_promised_where_the_network_between_machines_is_waited_for() -> None:
    sharded = replace(WORK, zero_stage=3, micro_batch=1, accumulation=8)

    step = gpu_step(sharded, NC, nodes=2, processes_per_node=4)

    assert step.network > step.compute
    assert "waits for the network between the machines" in step.doubt
    assert gpu_step(WORK, ND, nodes=1, processes_per_node=8).doubt == ""
