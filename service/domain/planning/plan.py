"""Make the plan of a job: where it runs, on how many machines, how long, and its cost.

Offerings are ranked by the expected cost of the whole job there, evictions included, which is the
cost per useful training step: the steps are the same everywhere.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Self

from contract.choices import Format
from service.domain.cloud.fleet import Offering
from service.domain.errors import InvalidRequest
from service.domain.humanize import format_duration
from service.domain.lifecycle.elastic import (
    ElasticNodes,
    StepBatch,
    allowed_node_counts,
    smallest_elastic_batch,
)
from service.domain.money.cost import CURRENCY
from service.domain.performance.layout import (
    Layout,
    MemoryShortfall,
    fit,
    fits_machine,
    has_room,
    refusal,
    same_batch,
)
from service.domain.performance.memory import GIB
from service.domain.performance.vm_catalogue import SKUS, Sku, lookup
from service.domain.planning.option import Option
from service.domain.planning.option_ranking import (
    WeighedLayout,
    by_cost,
    fastest_per_node_count,
    mean_sequence,
    rank_options,
    step_time,
)
from service.domain.planning.plan_limits import PlanLimits
from service.domain.planning.plan_request import Offer, PlanRequest
from service.domain.planning.selection import Selection, select, why
from service.domain.states import CapacityType
from service.domain.training.preflight import DataCounts
from service.domain.training.recipe import Recipe

_MEAN = {Format.PREFERENCE: "prompt with its output", Format.RANKING: "prompt with its output"}
_FP16 = (
    "Most CPUs cannot compute in fp16, and the job then fails on its first machine. Use "
    "training.precision bf16 or fp32, unless this computer's CPU can (such as with AVX512-FP16)."
)
_BF16 = (
    "Durations are computed from the speed of this computer's CPU in fp32; in bf16 a step may take "
    "less or more time."
)
_UNMEASURED = (
    "The step time is estimated, with a larger error than for other methods. It assumes answers "
    "half as long as max_answer_tokens, generated as fast as Hugging Face's generate on one GPU."
)
_REMEMBERED = 128  # plans


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The options of a job, cheapest first; the first one is chosen.

    All options share ``recipe`` and layout, so that a job may move from one to the next and still
    resume exactly. ``alternatives`` have other layouts; they are only shown.
    """

    recipe: Recipe
    options: tuple[Option, ...]
    alternatives: tuple[Option, ...]
    rejected: tuple[str, ...]  # what cannot be taken, and why
    why: str
    warnings: tuple[str, ...]
    elastic: ElasticNodes | None = None  # None: the world size is kept
    data: DataCounts | None = None  # None: rows were not checked yet, and lengths are estimates

    @property
    def chosen(self) -> Option:
        """Return the option that the job takes first."""
        return self.options[0]

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-able document; members of the chosen option on the top level."""
        return self.chosen.as_dict() | {
            "currency": CURRENCY,
            "recipe": self.recipe.to_plain(),
            "options": [option.as_dict() for option in self.options],
            "alternatives": [option.as_dict() for option in self.alternatives],
            "rejected": list(self.rejected),
            "why": self.why,
            "warnings": list(self.warnings),
            "elastic": self.elastic and self.elastic.as_dict(),
            "data": self.data and asdict(self.data),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Parse what ``as_dict`` returned."""
        return cls(
            recipe=Recipe.from_dict(data["recipe"]),
            options=tuple(map(Option.from_dict, data["options"])),
            alternatives=tuple(map(Option.from_dict, data["alternatives"])),
            rejected=tuple(data["rejected"]),
            why=data["why"],
            warnings=tuple(data["warnings"]),
            elastic=ElasticNodes.of_plan(data),
            data=DataCounts(**data["data"]) if data.get("data") else None,
        )


@lru_cache(maxsize=_REMEMBERED)
def make_plan(request: PlanRequest) -> Plan:
    """Make the plan, or raise InvalidRequest that says what to change; deterministic.

    Its code is "plan_does_not_fit", "no_offering", or "invalid_value" with the parameter.
    """
    _check(request)
    sizes = {o.offering.vm_size for o in request.offers if o.price and not o.forbidden}
    skus = {size: sku for size in sorted(sizes) if (sku := lookup(size))}
    fits = {size: fit(request.needs, sku) for size, sku in skus.items()}
    layouts = {size: result for size, result in fits.items() if isinstance(result, Layout)}
    ranked = rank_options(
        request, skus, {s: _layout_choices(request, skus[s], f) for s, f in layouts.items()}
    )
    if not ranked:
        raise _no_option_error(request, fits)
    selected = select(ranked, request.limits)
    layout, best = selected.best.layout, selected.best.option
    alike = {s: (layout,) for s in skus if _can_run(layout, skus[s], request)}
    same_layout = [w.option for w in rank_options(request, skus, alike)]
    options = (best, *(o for o in same_layout if o.offering != best.offering))
    alternatives = _alternatives(options, ranked, selected)
    elastic = _elastic(request, layout, [skus[o.offering.vm_size] for o in options])
    return Plan(
        recipe=layout.recipe,
        options=options,
        alternatives=alternatives,
        rejected=_rejected(request, fits, {w.option.offering for w in ranked}),
        why=_why(selected, request.limits, len({w.option.offering for w in ranked}), skus),
        warnings=(
            *(() if selected.is_sure else (why(selected, request.limits),)),
            *layout.recipe.warnings,
            *_warnings(best, layout.recipe, request),
            *filter(None, (step_time(request, skus[best.offering.vm_size], layout).doubt,)),
        ),
        elastic=elastic,
        data=DataCounts.of(request.data) if request.data else None,
    )


def _layout_choices(request: PlanRequest, sku: Sku, first: Layout) -> tuple[Layout, ...]:
    """Return the layouts to choose from on one VM size; extra nodes only for a deadline."""
    more_nodes = request.limits.deadline_seconds is not None
    return fastest_per_node_count(
        request, sku, same_batch(request.needs, sku, first, more_nodes=more_nodes)
    )


def _alternatives(
    options: Sequence[Option], ranked: Sequence[WeighedLayout], selected: Selection
) -> tuple[Option, ...]:
    """Return the best option of every other offering, and the cheapest and the fastest."""
    alternatives: list[WeighedLayout] = []
    for candidate in (selected.cheapest, selected.fastest):
        if (
            candidate not in (selected.best, *alternatives)
            and candidate.layout != selected.best.layout
        ):
            alternatives.append(candidate)
    offerings = {w.option.offering for w in alternatives} | {o.offering for o in options}
    for candidate in ranked:
        if candidate.option.offering not in offerings:
            offerings.add(candidate.option.offering)
            alternatives.append(candidate)
    return tuple(sorted((candidate.option for candidate in alternatives), key=by_cost))


def _elastic(request: PlanRequest, layout: Layout, skus: Sequence[Sku]) -> ElasticNodes | None:
    """Return the node counts of an elastic job that batch and memory allow everywhere."""
    least, nodes = request.min_nodes, layout.nodes
    if least is None:
        return None
    if not 1 <= least <= nodes:
        raise _elastic_error(
            f"min_nodes is {least}, but it must be 1 to {nodes}, the number of nodes."
        )
    batch = StepBatch(
        rows=layout.recipe.global_batch,
        rows_per_node=layout.micro_batch * layout.processes_per_node,
    )
    counts = allowed_node_counts(batch, min_nodes=least, nodes=nodes)
    roomy = tuple(n for n in counts if all(has_room(request.needs, layout, s, n) for s in skus))
    if least < nodes and len(counts) == 1:
        rows = smallest_elastic_batch(batch, min_nodes=least, nodes=nodes)
        raise _elastic_error(
            f"With a batch of {batch.rows} and micro_batch {layout.micro_batch}, fewer than "
            f"{nodes} nodes are no faster than fewer than {least}. Ask for a batch_size of {rows} "
            f"and micro_batch {layout.micro_batch}, or for a lower min_nodes."
        )
    if least < nodes and len(roomy) == 1:
        raise _elastic_error(
            f"The job needs at least {nodes} nodes to fit into memory. Set more nodes, or leave "
            "elastic out."
        )
    return ElasticNodes(min_nodes=least, node_counts=roomy, batch=batch)


def _elastic_error(message: str) -> InvalidRequest:
    return InvalidRequest(message, param="infrastructure.elastic.min_nodes")


def _check(request: PlanRequest) -> None:
    """Refuse what neither the recipe nor the layout checks."""
    for name in ("nodes", "processes_per_node"):
        value = getattr(request, name)
        if value is not None and value < 1:
            raise InvalidRequest(
                f"{name} is {value}, but it must be at least 1.", param=f"infrastructure.{name}"
            )
    if request.accelerator == "cpu" and request.training.zero_plus_plus:
        raise InvalidRequest(
            "zero_plus_plus needs GPUs, and this service trains on CPUs. Leave it out.",
            param="training.zero_plus_plus",
        )


def _can_run(layout: Layout, sku: Sku, request: PlanRequest) -> bool:
    """Return whether this layout can run on machines of this size with no GPU idle."""
    processes = request.processes_per_node or sku.gpus
    roomy = fits_machine(layout.memory, sku, layout.processes_per_node)
    return roomy and processes == layout.processes_per_node


def _no_option_error(
    request: PlanRequest, fits: Mapping[str, Layout | MemoryShortfall]
) -> InvalidRequest:
    """Return the refusal where no offering can be used."""
    misfits = [result for result in fits.values() if isinstance(result, MemoryShortfall)]
    if misfits:
        closest = min(misfits, key=lambda misfit: misfit.excess)
        message = refusal(request.needs, closest)
        return InvalidRequest(message, code="plan_does_not_fit", param="infrastructure")
    reasons = "; ".join(_rejected(request, fits, ())) or "no offering is configured"
    vm_sizes = ", ".join(sku.vm_size for sku in SKUS)
    message = (
        f"No offering can run this job: {reasons}. Allow other regions or VM sizes (known ones: "
        f"{vm_sizes}), or on-demand capacity, or a higher max_price."
    )
    return InvalidRequest(message, code="no_offering", param="infrastructure")


def _rejected(
    request: PlanRequest, fits: Mapping[str, Layout | MemoryShortfall], ranked: Collection[Offering]
) -> tuple[str, ...]:
    """Return one line for every offer that was not ranked."""
    return tuple(
        f"{offer.offering} {_rejection_reason(offer, fits.get(offer.offering.vm_size))}"
        for offer in request.offers
        if offer.offering not in ranked
    )


def _rejection_reason(offer: Offer, result: Layout | MemoryShortfall | None) -> str:
    if lookup(offer.offering.vm_size) is None:
        return "is a VM size that is not in the catalogue"
    if offer.forbidden:
        return offer.forbidden
    if offer.price is None:
        return "has no price in the price list"
    if isinstance(result, MemoryShortfall):
        return f"is {result.excess / GIB:.1f} GiB per {result.where} too small"
    return "is evicted faster than the job could recover"


def _why(selected: Selection, limits: PlanLimits, choices: int, skus: Mapping[str, Sku]) -> str:
    """Return the reason of the choice in one sentence; with limits in two."""
    best = selected.best.option
    machines = "1 node" if best.nodes == 1 else f"{best.nodes} nodes"
    limits_text = why(selected, limits) if selected.is_sure else ""
    rank = "is the only offering" if choices == 1 else f"is the cheapest of {choices} offerings"
    if selected.best != selected.cheapest:
        rank = f"is chosen by the {limits.names}"
    return (
        f"{best.offering} {rank}: about {best.cost_p50} {CURRENCY} and "
        f"{format_duration(best.duration_p50)} on {machines} with ZeRO stage {best.zero_stage} and "
        f"micro-batch {best.micro_batch}, which needs {best.memory.needed / GIB:.1f} of "
        f"{skus[best.offering.vm_size].gpu_memory_gib} GiB per GPU."
    ) + (limits_text and f" {limits_text}")


def _warnings(best: Option, recipe: Recipe, request: PlanRequest) -> tuple[str, ...]:
    """Return what the user should know before submitting."""
    warnings = []
    if request.emulated and request.accelerator == "cpu":
        warnings.append(_local(best.offering.vm_size))
    if request.accelerator == "cpu" and recipe.precision == "fp16":
        warnings.append(_FP16)
    if request.accelerator == "cpu" and recipe.precision == "bf16":
        warnings.append(_BF16)
    if (
        best.price.hourly >= best.price.on_demand_hourly
        and best.offering.capacity_type is CapacityType.SPOT
    ):
        warnings.append("Spot costs as much as on demand there now.")
    if recipe.reinforcement:
        warnings.append(_UNMEASURED)
    if (mean := mean_sequence(request, recipe)) > recipe.context:
        warnings.append(_too_long(recipe, mean))
    return tuple(warnings)


def _local(vm_size: str) -> str:
    return (
        "This service emulates its machines on this computer, and nothing is charged. Prices are "
        f"the list prices of {vm_size}; durations are those of this computer's CPU."
    )


def _too_long(recipe: Recipe, mean: int) -> str:
    if recipe.format is Format.PROMPT:
        return (
            f"A mean prompt has about {mean} tokens, and with more than {recipe.context} its "
            "answer has too little room; raise training.max_seq_len, or lower max_answer_tokens."
        )
    return (
        f"A mean {_MEAN.get(recipe.format, 'row')} has about {mean} tokens, but rows are cut at "
        f"{recipe.context}; raise training.max_seq_len to keep them whole."
    )
