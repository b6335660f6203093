"""Memory per GPU: the planner's closed form and a rule of thumb, against measurements."""

from collections.abc import Sequence

from bench.planner.errors import Errors
from bench.planner.points import PublishedRun
from service.domain.performance.memory import MemoryEstimate, MemoryProfile, MicroStep, estimate

GB = 1e9
# QwenLM's scripts: ZeRO-3 keeps gradients in bf16. Their 4-bit base model (GPTQ) computes in fp16,
# keeps no fp32 copy of the logits, and unpacks weights through integers.
QWEN = MemoryProfile(gradient=2, quantized_logit=6.5, unpacked=10)


def predict(point: PublishedRun) -> MemoryEstimate:
    """Return the planner's estimate for one GPU."""
    work = point.work
    return estimate(
        work.arch,
        MicroStep(
            samples=work.micro_batch,
            seq_len=work.tokens_per_sequence,
            full_parameters=point.wholes,
            profile=QWEN,
        ),
        zero_stage=work.zero_stage,
        world=point.gpus,
        options=work.options,
    )


def rule_of_thumb(point: PublishedRun) -> float:
    """Return bytes of one GPU by LLaMA-Factory's table: GB per billion parameters, by method."""
    lora = point.lora
    factor = 18.0 if lora is None else 0.5 if lora.quantized else 2.0
    return factor * point.work.arch.parameters / point.gpus


def measured(points: Sequence[PublishedRun]) -> list[PublishedRun]:
    """Return the points with a memory measurement."""
    return [p for p in points if p.memory]


def errors(points: Sequence[PublishedRun]) -> Errors:
    """Return the errors of the closed form without its safety margin."""
    return Errors.of_ratios([predict(p).total / _memory(p) for p in points])


def rule_errors(points: Sequence[PublishedRun]) -> Errors:
    """Return the errors of the rule of thumb."""
    return Errors.of_ratios([rule_of_thumb(p) / _memory(p) for p in points])


def under(points: Sequence[PublishedRun]) -> int:
    """Return the number of points that needed more than the closed form with its margin."""
    return sum(predict(p).needed < _memory(p) for p in points)


def rule_under(points: Sequence[PublishedRun], margin: float) -> int:
    """Return the number of points that needed more than the rule of thumb with ``margin``."""
    return sum(rule_of_thumb(p) * (1 + margin) < _memory(p) for p in points)


def _memory(point: PublishedRun) -> float:
    assert point.memory is not None, "asked of points with a memory only"
    return point.memory
