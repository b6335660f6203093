"""Suggest changes that make a planned job cheaper or faster. Pure."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from service.domain.errors import InvalidRequest
from service.domain.money.cost import cents
from service.domain.planning.option import Option
from service.domain.planning.plan import Plan, make_plan
from service.domain.planning.plan_request import PlanRequest
from service.domain.training.recipe import Training
from trainer.contract import Lora

Aim = Literal["cheaper", "faster"]
Way = tuple[str, Option]  # what to change in the request, and the option that follows
_WORTH = 0.95  # of the cost or the time: less of a difference is within the estimates' error
_SHOWN = 3  # suggestions of an aim
_RANK = 16
_MIN_SEQ_LEN = 64  # tokens; a shorter limit for sequences is not suggested


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """Another option, and the change of the request that leads to it."""

    aim: Aim
    change: str
    cost_p50: str
    cost_p90: str
    duration_p50: float
    duration_p90: float


def suggestions(request: PlanRequest, plan: Plan) -> list[Suggestion]:
    """Return the best changes of the request for each aim; at most three of each.

    Each keeps the budget and the deadline.
    """
    chosen, limits = plan.chosen, request.limits
    changes = [
        (change, option)
        for change, option in (*_other_offerings(plan), *_other_trainings(request))
        if limits.fits_budget(option) and limits.meets_deadline(option)
    ]
    cheaper = [c for c in changes if float(c[1].cost_p50) < _WORTH * float(chosen.cost_p50)]
    faster = [c for c in changes if c[1].duration_p50 < _WORTH * chosen.duration_p50]
    cheaper.sort(key=lambda c: c[1].cost_p50)
    faster.sort(key=lambda c: c[1].duration_p50)
    return [
        *(_suggestion("cheaper", *c) for c in cheaper[:_SHOWN]),
        *(_suggestion("faster", *c) for c in faster[:_SHOWN]),
    ]


def _suggestion(aim: Aim, change: str, option: Option) -> Suggestion:
    return Suggestion(
        aim=aim,
        change=change,
        cost_p50=str(cents(option.cost_p50)),
        cost_p90=str(cents(option.cost_p90)),
        duration_p50=option.duration_p50,
        duration_p90=option.duration_p90,
    )


def _other_offerings(plan: Plan) -> Iterator[Way]:
    """Yield the cheapest and the fastest other option of the plan."""
    alternatives = (*plan.options[1:], *plan.alternatives)
    if alternatives:
        cheapest = min(alternatives, key=lambda o: o.cost_p50)
        fastest = min(alternatives, key=lambda o: o.duration_p50)
        for option in dict.fromkeys((cheapest, fastest)):
            yield _offering_change(plan.chosen, option), option


def _offering_change(chosen: Option, option: Option) -> str:
    """Return the members of ``infrastructure`` that lead to the other option."""
    changes = []
    if option.nodes != chosen.nodes:
        changes.append(f"infrastructure.nodes {option.nodes}")
    if option.offering.region != chosen.offering.region:
        changes.append(f'infrastructure.regions ["{option.offering.region}"]')
    description = f"{option.nodes} x {option.offering}"
    return f"{' and '.join(changes)}: {description}" if changes else description


def _other_trainings(request: PlanRequest) -> Iterator[Way]:
    """Plan the job with one option of the training changed; leave out what cannot be planned."""
    for change, training in _training_changes(request):
        try:
            plan = make_plan(replace(request, training=training))
        except InvalidRequest:
            continue
        yield change, plan.chosen


def _training_changes(request: PlanRequest) -> Iterator[tuple[str, Training]]:
    training = request.training
    if not training.packing:
        yield "training.packing true", replace(training, packing=True)
    if training.lora is None:
        lora = Lora(rank=_RANK, alpha=2 * _RANK, dropout=0.0)
        plain = replace(training, train_last_n_layers=None, train_embeddings=True)
        yield f"training.adapter lora (of rank {_RANK}, not all weights)", replace(plain, lora=lora)
    if training.gradient_checkpointing:
        uncheckpointed = replace(training, gradient_checkpointing=False)
        yield "training.gradient_checkpointing false", uncheckpointed
    if shorter := _shorter_seq_len(request):
        length, share = shorter
        change = f"training.max_seq_len {length} (cuts {share:.0%} of the sequences)"
        yield change, replace(training, max_seq_len=length)


def _shorter_seq_len(request: PlanRequest) -> tuple[int, float] | None:
    """Return a power of two that cuts at most a tenth of the sequences, and the cut share.

    None where the rows were not counted, or no such length is shorter.
    """
    if request.data is None or request.training.reinforcement:
        return None
    lengths = request.data.lengths
    tenth = lengths[math.ceil(0.9 * (len(lengths) - 1))]
    length = max(_MIN_SEQ_LEN, 1 << (tenth - 1).bit_length())
    share = sum(n > length for n in lengths) / len(lengths)
    return (length, share) if share else None
