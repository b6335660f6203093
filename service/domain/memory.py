"""How many bytes one GPU needs, in closed form, by ZeRO stage, precision, LoRA and activations.

States follow ZeRO (Rajbhandari et al., 2020) with Adam: bf16 weights, gradients accumulated in
fp32, an fp32 master and two moments. The coefficients of activations, logits and run time were
fitted to published fine-tuning runs of 1.8 to 72 billion parameters (QwenLM's README).
"""

from dataclasses import dataclass
from typing import Final

from service.domain.architecture import Architecture
from service.domain.method import METHODS, Method
from trainer.contract import Lora

GIB: Final = 1024**3
MARGIN = 0.10  # kept free: allocator fragmentation and what the closed form leaves out

_RUNTIME = 2_700_000_000  # CUDA context, kernels' workspaces, NCCL
_BUCKET = 500_000_000  # elements, DeepSpeed's reduce and all-gather buckets
_LIVE_PARAMETERS = 1_000_000_000  # gathered at once in ZeRO-3 (stage3_max_live_parameters)
_GATHERED = 4  # times that much: in use, prefetched, being reduced and not yet freed
_LOGIT_BYTES = 11.0  # per token and word: bf16 logits, their fp32 copy, its gradient
_HIDDEN_COPIES = 6  # per layer: inputs of two norms (kept in fp32), two residuals
_WORKING_SET = 4 / 3  # of one layer: what is kept plus the gradients that flow through it
_FP32 = 4
_MOMENTS = 2 * _FP32


@dataclass(frozen=True, kw_only=True)
class MemoryEstimate:
    """Bytes on one GPU, by what they hold."""

    parameters: int
    gradients: int
    optimizer: int
    activations: int
    logits: int
    update: int  # temporaries of the optimizer step, when activations are gone
    buffers: int  # DeepSpeed's buckets and gathered parameters
    runtime: int  # CUDA context, kernels' workspaces, NCCL

    @property
    def states(self) -> int:
        """Bytes that stay from step to step."""
        return self.parameters + self.gradients + self.optimizer

    @property
    def total(self) -> int:
        """The busiest moment: the backward pass or the optimizer step, whichever needs more."""
        peak = max(self.activations + self.logits, self.update)
        return self.states + peak + self.buffers + self.runtime

    @property
    def needed(self) -> int:
        """The total with its margin: what a GPU must have."""
        return round(self.total * (1 + MARGIN))


@dataclass(frozen=True, kw_only=True)
class MicroStep:
    """What one process takes at once."""

    samples: int
    seq_len: int
    method: Method = "supervised"

    @property
    def tokens(self) -> int:
        """Of all sequences, each as long as it may be."""
        return self.samples * self.seq_len * METHODS[self.method].sequences


def estimate(
    arch: Architecture,
    micro_step: MicroStep,
    *,
    zero_stage: int,
    world: int,
    lora: Lora | None,
    checkpointing: bool,
    precision: str,
) -> MemoryEstimate:
    """Bytes that the busiest moment of a training step needs on one GPU.

    The reference is the model without its adapters; where there are none, a frozen copy of it. A
    reward model's own head is too small to count.
    """
    traits = METHODS[micro_step.method]
    width = 2 if precision == "bf16" else _FP32
    frozen = arch.parameters if lora else 0
    trained = arch.lora_parameters(lora.rank) if lora else arch.parameters
    shards = _Shards(zero_stage, world)
    reference = arch.parameters if traits.reference and not lora else 0
    tokens = micro_step.tokens
    master = _FP32 if zero_stage >= 1 else 0  # DeepSpeed's ZeRO keeps one even of fp32 weights
    return MemoryEstimate(
        parameters=shards.of_parameters((frozen + trained + reference) * width),
        gradients=shards.of_gradients(trained * _FP32),
        optimizer=shards.of_optimizer(trained * (master + _MOMENTS)),
        activations=tokens * _activation_bytes(arch, width, checkpointing=checkpointing),
        logits=round(tokens * arch.vocab_size * _LOGIT_BYTES) if traits.logits else 0,
        update=shards.of_optimizer(trained * _FP32),
        buffers=_buffers(arch, zero_stage, trained, width),
        runtime=_RUNTIME,
    )


@dataclass(frozen=True)
class _Shards:
    """What ZeRO divides by the world: from stage 1 the optimizer, 2 gradients, 3 parameters."""

    zero_stage: int
    world: int

    def of_optimizer(self, size: int) -> int:
        return -(-size // self.world) if self.zero_stage >= 1 else size

    def of_gradients(self, size: int) -> int:
        return -(-size // self.world) if self.zero_stage >= 2 else size

    def of_parameters(self, size: int) -> int:
        return -(-size // self.world) if self.zero_stage >= 3 else size


def _activation_bytes(arch: Architecture, width: int, *, checkpointing: bool) -> int:
    """Per token: what every layer keeps, or its input alone plus one layer at work."""
    attention = 2 * arch.q_size + 2 * arch.kv_size  # q, k, v and the output; no s x s matrix
    mlp = 4 * arch.intermediate_size  # gate, up, activated gate, product
    layer = width * (_HIDDEN_COPIES * arch.hidden_size + attention + mlp)
    if not checkpointing:
        return arch.layers * layer
    return round(arch.layers * arch.hidden_size * width + layer * _WORKING_SET)


def _buffers(arch: Architecture, zero_stage: int, trained: int, width: int) -> int:
    """Buckets of reduce and all-gather, never larger than what they carry; ZeRO-3's gathering."""
    if zero_stage == 0:
        return 0
    buckets = 3 * min(_BUCKET, trained) * width  # two for reducing (overlapped), one to gather
    if zero_stage < 3:
        return buckets
    return buckets + _GATHERED * min(_LIVE_PARAMETERS, arch.parameters) * width
