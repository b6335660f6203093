"""Estimate the time to generate answers: a roofline of memory and kernel launches.

Each token reads every weight and all earlier keys and values once, however many sequences are
generated side by side; kernels are launched for each. Fitted to Hugging Face's `generate` as
QwenLM's README has it: 1.8, 7 and 14 billion parameters on one A100-80GB are bound by launches, 72
on two by memory. Not measured here.
"""

from dataclasses import dataclass

from service.domain.models.architecture import Architecture

_LAUNCH_SECONDS = 0.00077  # per layer and token
_BANDWIDTH = 0.6  # of the data sheet's that reading weights reaches


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """What one process generates in an optimizer step."""

    arch: Architecture
    width: int  # bytes of a weight
    batches: float  # one after the other; of several steps together, so maybe no whole number
    sequences: int  # of a batch, side by side
    prompt_tokens: int  # of a mean sequence
    answer_tokens: int  # the same

    @property
    def weights(self) -> int:
        """Return the bytes of the whole model."""
        return self.arch.parameters * self.width

    @property
    def cache(self) -> int:
        """Return the bytes of keys and values when answers are half written."""
        positions = self.prompt_tokens + self.answer_tokens // 2
        return self.sequences * positions * cache_bytes(self.arch, self.width)

    @property
    def prefill_flops(self) -> float:
        """Return the FLOPs of reading a batch's prompts, once for each answer."""
        return 2.0 * self.arch.parameters * self.prompt_tokens * self.sequences


def cache_bytes(arch: Architecture, width: int) -> int:
    """Return the bytes of keys and values of one position."""
    return 2 * arch.layers * arch.kv_size * width


def gpu_seconds(rollout: Rollout, *, bandwidth: float, flops: float, gathering: float) -> float:
    """Return seconds on a GPU; ``bandwidth`` in bytes/s, ``gathering``: ZeRO-3's s per token."""
    reading = (rollout.weights + rollout.cache) / (_BANDWIDTH * bandwidth)
    token = max(reading, rollout.arch.layers * _LAUNCH_SECONDS, gathering)
    return rollout.batches * (rollout.prefill_flops / flops + rollout.answer_tokens * token)


def cpu_seconds(rollout: Rollout, *, flops: float) -> float:
    """Return seconds on a CPU process, which is bound by arithmetic."""
    written = 2.0 * rollout.arch.parameters * rollout.answer_tokens * rollout.sequences
    return rollout.batches * (rollout.prefill_flops + written) / flops
