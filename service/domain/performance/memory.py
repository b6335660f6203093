"""Compute the bytes that one GPU needs, by ZeRO stage, precision, LoRA and activations.

In closed form. States follow ZeRO (Rajbhandari et al., 2020) with Adam: bf16 weights, gradients
accumulated in fp32, an fp32 master and two moments. The coefficients of activations, logits and run
time were fitted to published fine-tuning runs of 1.8 to 72 billion parameters (QwenLM's README);
the errors are in docs/planning.md, and `python -m bench.planner` measures them.
"""

from dataclasses import dataclass
from typing import Final

from contract.methods import METHODS, Method
from service.domain.models.architecture import Architecture
from service.domain.models.trained_parameters import layers_with_gradients, trained_parameters
from service.domain.performance.rollout_time import cache_bytes
from service.domain.training.methods import keeps_reference, models_trained
from service.domain.training.reinforcement import parallel_answers, trained_per_answer
from trainer.contract import Reinforcement, TrainingOptions

GIB: Final = 1024**3
MARGIN = 0.10  # kept free: allocator fragmentation and what the closed form leaves out

_RUNTIME = 2_900_000_000  # CUDA context, kernels' workspaces, NCCL
_BUCKET = 500_000_000  # elements, DeepSpeed's reduce and all-gather buckets
_LIVE_PARAMETERS = 1_000_000_000  # gathered at once in ZeRO-3 (stage3_max_live_parameters)
_GATHERED = 3  # times that much: in use, prefetched, being reduced
_SUB_GROUP = 1_000_000_000  # parameters that ZeRO-3 updates at once (DeepSpeed's sub_group_size)
_HIDDEN_COPIES = 6  # per layer: inputs of two norms (kept in fp32), two residuals
_PAIR_BYTES = 10  # of two tokens and a head: scores, their softmax in fp32, its dropout
_WORKING_SET = 4 / 3  # of one layer: what is kept plus the gradients that flow through it
_FP32 = 4
_FOUR_BITS = 0.5 + 1 / 64 + _FP32 / (64 * 256)  # NF4: a byte scales 64, a number 256 bytes
_HOST = 5 * _FP32  # master, two moments, the gradient twice; and the weights on their way back
_MOMENTS = 2 * _FP32


@dataclass(frozen=True, kw_only=True)
class MemoryEstimate:
    """Bytes on one GPU by purpose; ``host`` is in the machine's memory."""

    parameters: int
    gradients: int
    optimizer: int
    activations: int
    logits: int
    update: int  # temporaries of the optimizer step, when activations are gone
    buffers: int  # DeepSpeed's buckets and gathered parameters
    runtime: int  # CUDA context, kernels' workspaces, NCCL
    cache: int  # keys and values of answers while they are written
    host: int  # of the process, not of the GPU: an optimizer that lives there

    @property
    def states(self) -> int:
        """Return the bytes that stay from step to step."""
        return self.parameters + self.gradients + self.optimizer

    @property
    def total(self) -> int:
        """Return the bytes at the peak: backward pass, optimizer step or rollout."""
        peak = max(self.activations + self.logits, self.update, self.cache)
        return self.states + peak + self.buffers + self.runtime

    @property
    def needed(self) -> int:
        """Return the total with its margin: what a GPU must have."""
        return round(self.total * (1 + MARGIN))


@dataclass(frozen=True, kw_only=True)
class MemoryProfile:
    """Bytes that differ between training programs for the same model."""

    gradient: int = _FP32  # of a parameter, where the whole model is trained
    logit: float = 11.0  # per token and word: bf16 logits, their fp32 copy, its gradient
    quantized_logit: float = 11.0  # the same over a base in 4 bits
    unpacked: int = 2  # of a weight in 4 bits while it is at work, the largest matrix at a time


TRAINER_PROFILE: Final = MemoryProfile()


@dataclass(frozen=True, kw_only=True)
class MicroStep:
    """The samples of one micro-step, and the state that it needs beside the model."""

    samples: int
    seq_len: int
    method: Method = "supervised"
    sequences: int | None = None  # of a sample; None: as many as the method says
    reinforcement: Reinforcement | None = None
    judge: int = 0  # parameters of the reward model that grades
    averaged: bool = False  # a moving average of the weights is kept
    full_parameters: int = 0  # trained whole beside adapters, in bf16 (peft's modules_to_save)
    profile: MemoryProfile = TRAINER_PROFILE

    @property
    def tokens(self) -> int:
        """Return the tokens of all sequences, each at its maximum length."""
        total = self.samples * self.seq_len * (self.sequences or METHODS[self.method].sequences)
        return (
            round(total * trained_per_answer(self.reinforcement)) if self.reinforcement else total
        )

    @property
    def generated_tokens(self) -> int:
        """Return the tokens of answers and prompts that are generated side by side."""
        settings = self.reinforcement
        # To train, or to validate.
        answers = max(parallel_answers(settings, self.samples), settings.at_once) if settings else 0
        return answers * self.seq_len


def estimate(
    arch: Architecture,
    micro_step: MicroStep,
    *,
    zero_stage: int,
    world: int,
    options: TrainingOptions,
) -> MemoryEstimate:
    """Return the bytes that the peak of a training step needs on one GPU.

    The reference is the model without its adapters; where there are none, a frozen copy of it. A
    reward model's own head is too small to count; PPO's critic is the whole model once more. A
    reward model that grades is whole on every GPU; an average of the weights lies with the moments.
    """
    width, lora = _FP32 if options.precision == "fp32" else 2, options.lora
    models = models_trained(micro_step.reinforcement)
    trained = models * trained_parameters(arch, options)
    adapters = trained if lora else 0
    on_host = bool(options.offload)
    shards = _Shards(zero_stage, world)
    has_reference = keeps_reference(micro_step.method, micro_step.reinforcement)
    reference = arch.parameters if has_reference and not lora else 0
    master = _FP32 if zero_stage >= 1 else 0  # DeepSpeed's ZeRO keeps one even of fp32 weights
    average = _FP32 if micro_step.averaged else 0
    profile, full_parameters = micro_step.profile, micro_step.full_parameters
    gradient = _FP32 if lora else profile.gradient
    weights = shards.of_parameters(
        models * _base_bytes(arch, options, width)
        + (adapters + reference + full_parameters) * width
    )
    away = weights if options.offload == "parameters" else 0
    host = shards.of_optimizer(trained * (_HOST + average + width)) if on_host else 0
    return MemoryEstimate(
        parameters=weights - away + micro_step.judge * width,
        gradients=shards.of_gradients(trained * gradient + full_parameters * width),
        optimizer=0
        if on_host
        else shards.of_optimizer(
            trained * (master + _MOMENTS + average) + full_parameters * 2 * width
        ),
        activations=models
        * micro_step.tokens
        * _activation_bytes(arch, width, options, micro_step.seq_len),
        logits=_logit_bytes(arch, micro_step, options),
        update=0 if on_host else shards.of_update(trained * _FP32 + full_parameters * width),
        buffers=_buffers(arch, zero_stage, trained, width) + _unpacked(arch, options, profile),
        runtime=_RUNTIME,
        cache=micro_step.generated_tokens * cache_bytes(arch, width),
        host=host + away,
    )


@dataclass(frozen=True)
class _Shards:
    """Sizes after ZeRO's partitioning: stage 1 optimizer, 2 gradients, 3 parameters."""

    zero_stage: int
    world: int

    def of_optimizer(self, size: int) -> int:
        return -(-size // self.world) if self.zero_stage >= 1 else size

    def of_update(self, size: int) -> int:
        """Return the bytes of an update: ZeRO-3 updates a sub-group at a time."""
        total = self.of_optimizer(size)
        return min(total, _SUB_GROUP * _FP32) if self.zero_stage >= 3 else total

    def of_gradients(self, size: int) -> int:
        return -(-size // self.world) if self.zero_stage >= 2 else size

    def of_parameters(self, size: int) -> int:
        return -(-size // self.world) if self.zero_stage >= 3 else size


def _base_bytes(arch: Architecture, options: TrainingOptions, width: int) -> int:
    """Return the bytes of the model's own weights, trained or not."""
    if not options.is_quantized:
        return arch.parameters * width
    other_parameters = arch.parameters - arch.linear_parameters
    return round(arch.linear_parameters * _FOUR_BITS) + other_parameters * width


def _unpacked(arch: Architecture, options: TrainingOptions, profile: MemoryProfile) -> int:
    """Return the bytes of the largest quantized matrix when dequantized."""
    if not options.is_quantized:
        return 0
    return max(i * o for i, o in arch.linear_layers()) * profile.unpacked


def _logit_bytes(arch: Architecture, micro_step: MicroStep, options: TrainingOptions) -> int:
    """Return the bytes of the logits of all tokens scored at once."""
    if METHODS[micro_step.method].head:
        return 0
    profile = micro_step.profile
    logit = profile.quantized_logit if options.is_quantized else profile.logit
    scored = min(micro_step.tokens, options.loss_chunk or micro_step.tokens)
    return round(scored * arch.vocab_size * logit)


def _activation_bytes(
    arch: Architecture, width: int, options: TrainingOptions, seq_len: int
) -> int:
    """Return bytes per token: every layer's activations, or inputs plus one layer."""
    layers = layers_with_gradients(arch, options)
    attention = 2 * arch.q_size + 2 * arch.kv_size  # q, k, v and the output; no s x s matrix
    mlp = (4 if arch.gated else 2) * arch.intermediate_size  # gate, up, activated gate, product
    layer = width * (_HIDDEN_COPIES * arch.hidden_size + attention + mlp)
    if arch.materializes:
        layer += _PAIR_BYTES * arch.heads * seq_len
    if not options.gradient_checkpointing:
        return layers * layer
    return round(layers * arch.hidden_size * width + layer * _WORKING_SET)


def _buffers(arch: Architecture, zero_stage: int, trained: int, width: int) -> int:
    """Return the bytes of the reduce and all-gather buckets, and of ZeRO-3's gathering."""
    if zero_stage == 0:
        return 0
    buckets = 3 * min(_BUCKET, trained) * width  # two for reducing (overlapped), one to gather
    if zero_stage < 3:
        return buckets
    return buckets + _GATHERED * min(_LIVE_PARAMETERS, arch.parameters) * width
