"""Measure how well a step uses the machines: MFU, memory, and the slowest rank.

Each rank times its forward passes. Up to stage 2 they contain no collective, so a slow GPU shows
there. Under ZeRO-3 all ranks wait for each other, so no rank is named.
"""

import logging
import resource
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from trainer.contract import RunSpec
from trainer.data.batch import Batch
from trainer.methods.descriptor import descriptor_of
from trainer.process.sync_flags import sum_over_ranks
from trainer.state import RankIdentity

COMPARE_EVERY = 25  # steps between two comparisons of all ranks
SLOW_RATIO = 1.2  # times the median rank: worth a line in the log
# Dense 16-bit operations a second, from NVIDIA's data sheets.
_PEAKS = {"A100": 312e12, "H100 NVL": 835e12, "H100": 989e12, "H200": 989e12}

log = logging.getLogger(__name__)


class UtilizationMeter:
    """Measurements of one rank; the step's metrics are equal on all ranks."""

    def __init__(self, engine: Any, spec: RunSpec, identity: RankIdentity) -> None:  # noqa: ANN401
        self._spec, self._identity, self._device = spec, identity, engine.device
        self._compares_ranks = spec.zero_stage < 3
        is_mfu_defined = descriptor_of(spec).one_pass and spec.precision != "fp32"
        self._peak = _peak_flops(engine.device) if is_mfu_defined else 0.0
        self._per_token = _flops_per_token(engine.module) if self._peak else 0.0
        self._passes: list[tuple[Any, Any]] = []
        # Seconds in forward passes since the last comparison: rows differ.
        self._forward_seconds = 0.0

    @contextmanager
    def time_forward(self) -> Iterator[None]:
        """Time the enclosed forward pass, without waiting for the GPU."""
        start = self._mark()
        yield
        self._passes.append((start, self._mark()))

    def step_metrics(self, step: int, tokens: float, seconds: float) -> dict[str, Any]:
        """Return members of StepMetrics; ``tokens`` counts all ranks. Collective."""
        metrics: dict[str, Any] = {}
        if self._peak:
            rate = tokens * self._per_token / max(seconds, 1e-9)
            metrics["mfu"] = rate / (self._peak * self._identity.world_size)
        self._forward_seconds += self._seconds()
        self._passes.clear()
        if step % COMPARE_EVERY == 0:
            metrics |= self._compare_ranks(step)
            self._forward_seconds = 0.0
        return metrics

    def _compare_ranks(self, step: int) -> dict[str, Any]:
        world, rank = self._identity.world_size, self._identity.rank
        own_values = [0.0] * (2 * world)
        own_values[2 * rank : 2 * rank + 2] = [
            self._forward_seconds,
            float(peak_memory(self._device)),
        ]
        gathered = sum_over_ranks(*own_values, device=self._device)
        metrics: dict[str, Any] = {"peak_memory": int(max(gathered[1::2]))}
        if self._compares_ranks and world > 1:
            metrics |= slowest_rank(gathered[::2])
            if metrics["slowest_ratio"] > SLOW_RATIO:
                log.info(
                    "step %d: rank %d is the slowest, %.2f times the median of all ranks",
                    step,
                    metrics["slowest_rank"],
                    metrics["slowest_ratio"],
                )
        return metrics

    def _mark(self) -> Any:  # noqa: ANN401
        if self._device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _seconds(self) -> float:
        """Return the seconds of the step's forward passes, which have completed."""
        if self._device.type != "cuda":
            return float(sum(end - start for start, end in self._passes))
        return float(sum(start.elapsed_time(end) for start, end in self._passes)) / 1000


def slowest_rank(seconds: Sequence[float]) -> dict[str, Any]:
    """Return the slowest rank and the ratio of its seconds to the lower median."""
    median = sorted(seconds)[(len(seconds) - 1) // 2]
    rank = max(range(len(seconds)), key=lambda r: seconds[r])
    return {"slowest_rank": rank, "slowest_ratio": seconds[rank] / max(median, 1e-9)}


def count_tokens(batch: Batch) -> int:
    """Return the tokens that the model computes, without padding."""
    return batch.ids.numel() if batch.attention is None else int(batch.attention.sum())


def peak_memory(device: torch.device) -> int:
    """Return the peak bytes of this process: on the GPU, or else on the host."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _flops_per_token(model: Any) -> float:  # noqa: ANN401
    """Return the operations per token: 2 a weight forward, 2 back, 2 more where it is trained.

    Attention's own products and weights that are only looked up are left out.
    """
    looked_up = {id(p) for p in model.get_input_embeddings().parameters()}
    tied = bool(getattr(model.config, "tie_word_embeddings", False))
    weights = [p for p in model.parameters() if tied or id(p) not in looked_up]
    return float(sum(_size(p) * (6 if p.requires_grad else 4) for p in weights))


def _size(parameter: Any) -> int:  # noqa: ANN401
    """Return the elements of the whole weight: ZeRO-3 and 4 bits keep fewer here."""
    if (quantized := getattr(parameter, "quant_state", None)) is not None:
        return int(quantized.shape.numel())
    return int(getattr(parameter, "ds_numel", parameter.numel()))


def _peak_flops(device: torch.device) -> float:
    """Return the GPU's peak operations a second; 0 where it is not known."""
    if device.type != "cuda":
        return 0.0
    name = torch.cuda.get_device_name(device)
    return next((peak for model, peak in _PEAKS.items() if model in name), 0.0)
