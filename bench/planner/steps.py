"""Step times: the planner's predictions for points, and coefficients fitted to points."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from bench.planner import fitting
from bench.planner.points import PublishedRun
from service.domain.performance.efficiency import (
    FEW_NODES,
    HUGGING_FACE,
    LLM_FOUNDRY,
    UNMEASURED,
    UNMEASURED_ZERO,
    GpuEfficiency,
    TrainingStack,
)
from service.domain.performance.throughput import StepTime, gpu_step

STACKS: Mapping[str, TrainingStack] = {"foundry": LLM_FOUNDRY, "hugging_face": HUGGING_FACE}
_SPEED = ("share", "width", "attention")
# Coefficients to fit, by program; the others keep their stored values.
FITTED = {
    "foundry": ("launch", "local", "fabric"),
    "hugging_face": ("launch", "launch_sharded", "launch_quantized", "adapters", "unpack", "local"),
}
_FIXED = {"hugging_face": ("width", "attention")}  # not separable from adapters here
_LAUNCHES = ("launch", "launch_sharded", "launch_quantized")


def unmeasured(point: PublishedRun) -> TrainingStack:
    """Return the coefficients for a program without measurements, by its collectives."""
    return UNMEASURED_ZERO if point.zero else UNMEASURED


def stack_of(point: PublishedRun) -> TrainingStack:
    """Return the product's coefficients for this point."""
    return STACKS.get(point.stack) or unmeasured(point)


def predict(point: PublishedRun, stack: TrainingStack) -> StepTime:
    """Predict the time of one optimizer step.

    Partial recomputation is interpolated between none and full.
    """
    if 0.0 < point.recomputed_share < 1.0:
        none, full = (_step(point, stack, checkpointing=c) for c in (False, True))
        return replace(
            none, seconds=none.seconds + point.recomputed_share * (full.seconds - none.seconds)
        )
    return _step(point, stack, checkpointing=point.work.options.gradient_checkpointing)


def _step(point: PublishedRun, stack: TrainingStack, *, checkpointing: bool) -> StepTime:
    options = replace(point.work.options, gradient_checkpointing=checkpointing)
    work = replace(point.work, options=options)
    if point.split:
        return gpu_step(work, point.sku, nodes=1, processes_per_node=1, stack=stack)
    return gpu_step(
        work, point.sku, nodes=point.nodes, processes_per_node=point.per_node, stack=stack
    )


def over_few_nodes(points: Sequence[PublishedRun]) -> list[PublishedRun]:
    """Return the points with a time, on 2 to 16 machines, with data parallelism only."""
    return [p for p in points if p.seconds and 1 < p.nodes <= FEW_NODES and not p.split]


def with_our_network(
    point: PublishedRun, few: float | None = HUGGING_FACE.fabric_few
) -> TrainingStack:
    """Return the point's coefficients with the network coefficients that jobs are planned with.

    Args:
        point: The point.
        few: Share of the network bandwidth on few machines; None uses one factor for all sizes.
    """
    network = HUGGING_FACE
    return replace(
        stack_of(point),
        local=network.local,
        fabric=network.fabric,
        overlap=network.overlap,
        fabric_few=few,
    )


def fitted_to_few(points: Sequence[PublishedRun]) -> float:
    """Fit the share of the network bandwidth on few machines to these points."""

    def residuals(at: fitting.Coefficients) -> Sequence[float]:
        few = at["fabric_few"]
        return [log_error(p, predict(p, with_our_network(p, few)).seconds) for p in points]

    return fitting.fit({"fabric_few": 1.0}, residuals)["fabric_few"]


def constant_mfu(point: PublishedRun) -> float:
    """Predict the rival's step time: half of the peak FLOPS, for every model, batch and network."""
    arch, work = point.work.arch, point.work
    tokens = work.accumulation * work.micro_tokens
    flops = 6 * arch.parameters + 12 * arch.layers * arch.hidden_size * work.tokens_per_sequence
    return tokens * flops / (0.5 * point.sku.bf16_tflops * 1e12)


def log_error(point: PublishedRun, predicted: float) -> float:
    """Return the natural logarithm of predicted over measured."""
    assert point.seconds is not None, "asked of points with a time only"
    return math.log(predicted / point.seconds)


def fitted(kind: str, points: Sequence[PublishedRun]) -> TrainingStack:
    """Fit the coefficients of a program to these points only."""
    start = _start(kind, points)

    def residuals(at: fitting.Coefficients) -> Sequence[float]:
        stack = _stack(kind, at)
        return [log_error(p, predict(p, stack).seconds) for p in points]

    return _stack(kind, fitting.fit(start, residuals))


def coefficients(kind: str, points: Sequence[PublishedRun]) -> int:
    """Return the number of coefficients of a fit to these points."""
    return len(_start(kind, points))


# Start of every fit: round guesses, so that no fit depends on an earlier one.
_GUESS = {"share": 0.7, "width": 500.0, "attention": 0.3, "launch": 0.005, "launch_sharded": 0.005}
_GUESS |= {"launch_quantized": 0.005, "adapters": 100.0, "unpack": 1e-11}
_GUESS |= {"local": 0.3, "fabric": 0.7}


def _start(kind: str, points: Sequence[PublishedRun]) -> dict[str, float]:
    families = sorted({p.sku.family for p in points})
    fixed = _FIXED.get(kind, ())
    speeds = {f"{f}.{n}": _GUESS[n] for f in families for n in _SPEED if n not in fixed}
    return speeds | {name: _GUESS[name] for name in FITTED[kind]}


def _stack(kind: str, at: fitting.Coefficients) -> TrainingStack:
    base = STACKS[kind]
    speeds = {
        family: GpuEfficiency(
            **{n: at.get(f"{family}.{n}", old) for n, old in asdict(speed).items()}
        )
        for family, speed in base.speeds.items()
    }
    coefficients: dict[str, Any] = {name: at[name] for name in FITTED[kind]}
    if "launch_sharded" not in coefficients:
        coefficients |= dict.fromkeys(_LAUNCHES, coefficients["launch"])
    return replace(base, speeds=speeds, **coefficients)
