"""Memory: ZeRO's closed form, against published measurements, never too little."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.methods import METHODS, Method
from service.domain.models.architecture import Architecture
from service.domain.performance.memory import MemoryEstimate, MicroStep, estimate
from trainer.contract import Lora, TrainingOptions

LORA_64 = Lora(rank=64, alpha=16, dropout=0.05)
QLORA_64 = replace(LORA_64, quantized=True)
GB = 10**9


def qwen(hidden: int, layers: int, heads: int, intermediate: int) -> Architecture:
    """Return a model of the first Qwen series: Qwen2's tensors, no grouped queries."""
    return Architecture.from_config(
        {
            "model_type": "qwen2",
            "hidden_size": hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "intermediate_size": intermediate,
            "vocab_size": 151936,
            "max_position_embeddings": 8192,
        }
    )


QWEN_2B = qwen(2048, 24, 16, 5504)
QWEN_7B = qwen(4096, 32, 32, 11008)
QWEN_14B = qwen(5120, 40, 40, 13696)
QWEN_72B = qwen(8192, 80, 64, 24576)


def needs(
    arch: Architecture = QWEN_7B,
    *,
    zero_stage: int = 2,
    world: int = 8,
    micro_batch: int = 1,
    seq_len: int = 2048,
    method: Method = "supervised",
    **options: Any,  # noqa: ANN401 - of TrainingOptions
) -> MemoryEstimate:
    return estimate(
        arch,
        MicroStep(samples=micro_batch, seq_len=seq_len, method=method),
        zero_stage=zero_stage,
        world=world,
        options=TrainingOptions(**options),
    )


# Peak GB of one GPU in "Profiling of Memory and Speed" of QwenLM/Qwen's README: A100-80GB,
# micro-batch 1, flash attention, gradient checkpointing, LoRA of rank 64.
MEASURED = [
    (QWEN_2B, LORA_64, 0, 1, 1024, 8.4),
    (QWEN_2B, LORA_64, 0, 1, 8192, 21.8),
    (QWEN_2B, None, 2, 1, 512, 43.5),
    (QWEN_2B, None, 2, 1, 4096, 47.1),
    (QWEN_7B, LORA_64, 0, 1, 256, 20.1),
    (QWEN_7B, LORA_64, 0, 1, 2048, 23.8),
    (QWEN_7B, LORA_64, 0, 1, 8192, 36.6),
    (QWEN_14B, LORA_64, 0, 1, 4096, 42.5),
    (QWEN_72B, LORA_64, 3, 4, 2048, 228.8 / 4),
    (QWEN_7B, QLORA_64, 0, 1, 256, 11.5),
    (QWEN_7B, QLORA_64, 0, 1, 1024, 12.3),
    (QWEN_7B, QLORA_64, 0, 1, 2048, 13.9),
]


@pytest.mark.parametrize(("arch", "lora", "zero_stage", "world", "seq_len", "measured"), MEASURED)
def test_published_peaks_are_met_and_never_exceed_the_need(
    arch: Architecture,
    lora: Lora | None,
    zero_stage: int,
    world: int,
    seq_len: int,
    measured: float,
) -> None:
    estimate = needs(arch, zero_stage=zero_stage, world=world, seq_len=seq_len, lora=lora)

    assert measured * GB <= estimate.needed
    assert estimate.total == pytest.approx(measured * GB, rel=0.12)


def test_zero_divides_what_it_says_of_16_bytes_a_parameter() -> None:
    parameters = QWEN_7B.parameters
    stages = [needs(zero_stage=stage, precision="fp16") for stage in (1, 2, 3)]

    assert [s.parameters for s in stages] == [2 * parameters, 2 * parameters, 2 * parameters // 8]
    assert [s.gradients for s in stages] == [
        4 * parameters,
        4 * parameters // 8,
        4 * parameters // 8,
    ]
    assert [s.optimizer for s in stages] == [12 * parameters // 8] * 3
    assert needs(zero_stage=0, world=1, precision="fp32").states == 16 * QWEN_7B.parameters


def test_adapters_leave_the_base_model_without_gradients() -> None:
    estimate = needs(zero_stage=1, world=1, lora=LORA_64)

    trained = QWEN_7B.lora_parameters(64)
    assert estimate.gradients == 4 * trained
    assert estimate.parameters == 2 * (QWEN_7B.parameters + trained)


def test_frozen_layers_have_no_gradients_or_moments_but_activations_if_those_below_train() -> None:
    last_layers = needs(world=1, train_last_n_layers=2, train_embeddings=False)

    trained = 2 * QWEN_7B.layer_parameters + QWEN_7B.embedding_parameters + QWEN_7B.hidden_size
    assert (last_layers.gradients, last_layers.optimizer) == (4 * trained, 12 * trained)
    assert last_layers.parameters == needs(world=1).parameters
    assert last_layers.activations < needs(world=1).activations
    assert needs(train_last_n_layers=2).activations == needs().activations


def test_logits_of_a_chunk_are_all_that_there_are_at_once() -> None:
    chunked, unchunked = needs(loss_chunk=512), needs()

    assert 4 * chunked.logits == unchunked.logits
    assert needs(loss_chunk=10**6).logits == unchunked.logits


def test_a_frozen_reference_is_shared_out_by_zero_3_alone_and_adapters_need_none() -> None:
    shared, partitioned = (needs(zero_stage=stage, method="dpo") for stage in (3, 2))

    assert shared.parameters == partitioned.parameters // 8
    assert needs(lora=LORA_64, method="dpo").states == needs(lora=LORA_64).states


def test_the_optimizer_step_and_the_backward_pass_do_not_meet() -> None:
    estimate = needs(seq_len=256)

    assert estimate.update > estimate.activations + estimate.logits
    constant = estimate.states + estimate.buffers + estimate.runtime
    assert estimate.total == constant + estimate.update


@given(
    zero_stage=st.integers(1, 3),
    world=st.integers(1, 256),
    micro_batch=st.integers(1, 64),
    seq_len=st.integers(2, 32768),
    lora=st.sampled_from([None, LORA_64]),
    checkpointing=st.booleans(),
    method=st.sampled_from(list(METHODS)),
)
def test_need_grows_with_rows_and_shrinks_with_the_world(
    zero_stage: int,
    world: int,
    micro_batch: int,
    seq_len: int,
    lora: Lora | None,
    checkpointing: bool,
    method: Method,
) -> None:
    def total(stage: int, processes: int, rows: int, length: int) -> int:
        return needs(
            zero_stage=stage,
            world=processes,
            micro_batch=rows,
            seq_len=length,
            lora=lora,
            gradient_checkpointing=checkpointing,
            method=method,
        ).needed

    base = total(zero_stage, world, micro_batch, seq_len)
    assert total(zero_stage, world + 1, micro_batch, seq_len) <= base
    assert total(zero_stage, world, micro_batch + 1, seq_len) >= base
    assert total(zero_stage, world, micro_batch, seq_len + 1) >= base


def test_an_average_of_the_weights_lies_with_the_moments_on_the_host() -> None:
    plain, averaged = (
        estimate(
            QWEN_7B,
            MicroStep(samples=1, seq_len=1024, averaged=average),
            zero_stage=2,
            world=8,
            options=TrainingOptions(offload="optimizer"),
        )
        for average in (False, True)
    )

    assert averaged.host - plain.host == pytest.approx(4 * QWEN_7B.parameters / 8, abs=1)
    assert replace(averaged, host=plain.host) == plain
