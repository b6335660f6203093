"""What would make a planned job cheaper or faster. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from service.domain.cost import cents
from service.domain.option import Option
from service.domain.plan import Plan

Aim = Literal["cheaper", "faster"]
_WORTH = 0.95  # of the cost or the time: less of a difference is within the estimates' error


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """Another option, and what to change in the request to get it; money as decimal strings."""

    aim: Aim
    change: str
    cost_p50: str
    cost_p90: str
    duration_p50: float
    duration_p90: float


def suggestions(plan: Plan) -> list[Suggestion]:
    """The cheapest and the fastest option that the plan knows, where they differ from its own."""
    others = (*plan.options[1:], *plan.alternatives)
    return [*_cheaper(plan.chosen, others), *_faster(plan.chosen, others)]


def _cheaper(chosen: Option, others: Sequence[Option]) -> Iterator[Suggestion]:
    best = min(others, key=lambda o: o.cost_p50, default=chosen)
    if float(best.cost_p50) < _WORTH * float(chosen.cost_p50):
        yield _suggestion("cheaper", chosen, best)


def _faster(chosen: Option, others: Sequence[Option]) -> Iterator[Suggestion]:
    best = min(others, key=lambda o: o.duration_p50, default=chosen)
    if best.duration_p50 < _WORTH * chosen.duration_p50:
        yield _suggestion("faster", chosen, best)


def _suggestion(aim: Aim, chosen: Option, other: Option) -> Suggestion:
    return Suggestion(
        aim=aim,
        change=_change(chosen, other),
        cost_p50=str(cents(other.cost_p50)),
        cost_p90=str(cents(other.cost_p90)),
        duration_p50=other.duration_p50,
        duration_p90=other.duration_p90,
    )


def _change(chosen: Option, other: Option) -> str:
    """The members of ``infrastructure`` that lead to the other option."""
    changes = []
    if other.nodes != chosen.nodes:
        changes.append(f"infrastructure.nodes {other.nodes}")
    if other.offering.region != chosen.offering.region:
        changes.append(f'infrastructure.regions ["{other.offering.region}"]')
    place = f"{other.nodes} x {other.offering}"
    return f"{' and '.join(changes)}: {place}" if changes else place
