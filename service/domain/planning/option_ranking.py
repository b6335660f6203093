"""Estimate and rank the options of a job: each offering with each layout."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from service.domain.models.architecture import Architecture
from service.domain.models.trained_parameters import trained_parameters
from service.domain.performance.calibration import calibrate, experience, planned_job
from service.domain.performance.layout import Layout
from service.domain.performance.padding import (
    computed_tokens,
    cut_lengths,
    estimate_lengths,
    mixed_lengths,
)
from service.domain.performance.throughput import StepTime, StepWork, cpu_step, gpu_step
from service.domain.performance.vm_catalogue import Sku
from service.domain.planning.option import Hazard, Option, estimate_option
from service.domain.planning.plan_request import PlanRequest
from service.domain.states import CapacityType
from service.domain.training.methods import models_trained
from service.domain.training.recipe import Recipe, Training
from service.domain.training.reinforcement import expected_tokens

_VERIFY_START_SECONDS = 10.0  # of a process that imports torch and transformers
_VERIFY_READ_BYTES = 1e9  # a second, of weights from a disk just written, or from its cache


@dataclass(frozen=True, kw_only=True)
class WeighedLayout:
    """A layout on one offering, with its estimate."""

    layout: Layout
    option: Option


def rank_options(
    request: PlanRequest, skus: Mapping[str, Sku], layouts: Mapping[str, Sequence[Layout]]
) -> tuple[WeighedLayout, ...]:
    """Return the options of every offer that has a price, cheapest first."""
    ranked = []
    steps = {
        size: [(layout, step_time(request, skus[size], layout)) for layout in several]
        for size, several in layouts.items()
    }
    for offer in request.offers:
        if offer.price is None or offer.forbidden:
            continue
        spot = offer.offering.capacity_type is CapacityType.SPOT  # nothing else is evicted
        hazard = Hazard(
            evictions_per_hour=offer.evictions_per_hour if spot else 0.0,
            source=offer.evictions_from if spot else "",
            recovery_seconds=request.recovery_seconds,
            trained=_trained_parameters(request),
            verify_seconds=verify_seconds(request.training, request.arch),
            fewest_nodes=request.min_nodes,
        )
        for layout, step in steps.get(offer.offering.vm_size, ()):
            if option := estimate_option(offer.offering, offer.price, layout, step, hazard):
                ranked.append(WeighedLayout(layout=layout, option=option))
    return tuple(sorted(ranked, key=lambda w: by_cost(w.option)))


def by_cost(option: Option) -> tuple[object, ...]:
    """Return the sort key: expected cost of the whole job, then its duration."""
    return option.cost_p50, option.duration_p50, option.offering


def fastest_per_node_count(
    request: PlanRequest, sku: Sku, layouts: Iterable[Layout]
) -> tuple[Layout, ...]:
    """Keep the micro-batch with the shortest step of each number of nodes; of equals the first.

    A larger one launches fewer kernels; a smaller one pads less.
    """
    return tuple(
        min(alike, key=lambda layout: step_time(request, sku, layout).seconds)
        for _, alike in groupby(layouts, key=attrgetter("nodes"))
    )


def _trained_parameters(request: PlanRequest) -> int:
    training = request.training
    per_model = trained_parameters(request.arch, training)
    return models_trained(training.reinforcement) * per_model


def step_time(request: PlanRequest, sku: Sku, layout: Layout) -> StepTime:
    """Predict one optimizer step of the layout on machines of this size."""
    work = StepWork(
        arch=request.arch,
        zero_stage=layout.zero_stage,
        micro_batch=layout.micro_batch,
        accumulation=layout.accumulation,
        tokens_per_sequence=_tokens_of_sequence(request, layout),
        options=layout.recipe,
        method=layout.recipe.method,
        sequences=layout.recipe.sequences,
        judge=request.needs.judge,
    )
    if request.accelerator == "cpu":
        step = cpu_step(work, flops=request.cpu_flops)
    else:
        step = gpu_step(work, sku, nodes=layout.nodes, processes_per_node=layout.processes_per_node)
    planned = planned_job(request.model, layout.recipe.method, layout.recipe.lora, sku.vm_size)
    return calibrate(step, experience(request.past, planned))


def mean_sequence(request: PlanRequest, recipe: Recipe) -> int:
    """Return the mean tokens of a sequence in the file, without answers to be generated."""
    return -(-request.mean_tokens // _sequences_per_row(recipe))


def _tokens_of_sequence(request: PlanRequest, layout: Layout) -> int:
    """Return tokens of a sequence in a step, with padding and waits for longer rows."""
    recipe = layout.recipe
    answer = expected_tokens(recipe.reinforcement) if recipe.reinforcement else 0
    tokens = computed_tokens(
        _lengths(request, recipe),
        side_by_side=layout.micro_batch * _sequences_per_row(recipe),
        packing=recipe.packing,
        ranks=layout.nodes * layout.processes_per_node,
        rounds=layout.accumulation if layout.zero_stage < 2 else 1,
    )
    return tokens + answer


def _lengths(request: PlanRequest, recipe: Recipe) -> Sequence[int]:
    """Return the lengths of sequences after the cut: counted, or estimated from the upload."""
    if request.data is not None:
        lengths: Sequence[int] = cut_lengths(request.data.lengths, recipe.context)
    else:
        mean = request.mean_tokens / _sequences_per_row(recipe)
        lengths = cut_lengths(
            estimate_lengths(mean, request.longest, request.examples), recipe.context
        )
    return mixed_lengths(lengths, recipe.mix, _sequences_per_row(recipe)) if recipe.mix else lengths


def _sequences_per_row(recipe: Recipe) -> int:
    """Return the number of sequences in a row of the file."""
    return 1 if recipe.reinforcement else recipe.sequences


def verify_seconds(training: Training, arch: Architecture) -> float:
    """Return seconds after the last step in which a fresh process loads result and base again.

    0: the result is not verified. A few thousand tokens through the model take less than reading
    the weights. The trainer's side: `trainer/verify`; measured: ADR 0054.
    """
    if not training.verify:
        return 0.0
    width = 4 if training.precision == "fp32" else 2
    loads = 3 if training.is_quantized else 2  # the export, the base model, and that in 4 bits
    return _VERIFY_START_SECONDS + loads * width * arch.parameters / _VERIFY_READ_BYTES
